"""One module per revision; never change a released one."""
