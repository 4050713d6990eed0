"""Authorization of requests, ACLs and delegation tokens."""
