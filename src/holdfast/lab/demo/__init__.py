"""The demo: events, a broker and a Spark driver killed in their midst, a table; and the evidence.

It stands on the lab's own run, clients, journal and judge. Its own are the events, the Spark
driver's process, the order of the steps, and what holds the table against the log.
"""
