"""The authenticator `sasl`, its mechanisms and its credential stores."""
