"""Settings with which the JVM of a process of ours does without its second compiler.

That one pays off after a minute, as `headrace.spark.conf` says of short-lived commands: what
it compiles until then takes processor time from the tests beside it. No behaviour differs.
"""

import json

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
QUICK_JAVA = {"HEADRACE_SPARK_CONF": json.dumps({"spark.driver.extraJavaOptions": _OPTIONS})}
