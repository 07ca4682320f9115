"""`kelpie mcp`: MCP in the command line."""

from kelpie.cli.commands.tools import mcp_servers
from kelpie.cli.options import Url, client, examples, group

commands = group(
    "Register MCP servers, show them and their tools, call a tool, log in, and offer this server to MCP clients.",
    "mcp list",
    "mcp add files -- npx -y @modelcontextprotocol/server-filesystem /data",
    "mcp add search --http https://mcp.example.com/mcp",
    "mcp serve",
)
mcp_servers.register(commands)


@commands.command(epilog=examples("mcp serve", "mcp serve --url https://kelpie.example.com"))
def serve(url: Url = None) -> None:
    """Offer the running server to an MCP client over standard input and output.

    For desktop clients that start a program. Clients that can use HTTP need only the URL of the server with /mcp.
    """
    from kelpie.cli.commands.tools import mcp_serve

    mcp_serve.serve(client(url))
