# Listens.
import socket
try:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    print("ESCAPED")
except OSError:
    pass
try:
    socket.socketpair()
    print("ESCAPED pair")
except OSError:
    pass
def solve(x):
    return None
