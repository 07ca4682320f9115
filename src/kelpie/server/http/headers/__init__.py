"""Headers of requests and answers: the version of the client, the user it acts for, and those that Kelpie adds."""
