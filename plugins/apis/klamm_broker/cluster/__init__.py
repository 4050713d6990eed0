"""The nodes of a cluster, their leaderships and coordinators, and the view of them that clients get."""
