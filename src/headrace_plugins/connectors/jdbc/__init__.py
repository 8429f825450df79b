"""The source for tables of all databases, and the sink for any database with a JDBC driver."""
