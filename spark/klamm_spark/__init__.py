"""The observer `audit`, and the pipeline that ships its spool to Spark."""
