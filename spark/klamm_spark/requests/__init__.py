"""The resources and state changes of a request, from its decoded request and response. No module here does input or
output.
"""
