"""The publisher's side for operators: the admin service, changes of flows, status, metrics and readiness."""
