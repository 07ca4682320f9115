"""The sandbox: jobs in cells, how many run at once, and the pool of cells that wait for jobs."""
