"""The sandbox: jobs in cells, the limit on concurrent jobs, and the pool of cells that wait for jobs."""
