"""The command line. It talks to a running server over HTTP and touches neither SQL nor providers."""
