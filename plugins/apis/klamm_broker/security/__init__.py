"""Who may do what: authorization of requests, ACLs, delegation tokens."""
