"""What operators see and change: the admin service, status, metrics, readiness."""
