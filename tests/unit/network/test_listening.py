"""Tests of the file of a listening Unix socket."""

import os
import socket

from klamm import Address
from klamm.server.listening import ListeningSocket


def test_a_second_close_leaves_the_file_of_a_successor_with_the_same_inode(tmp_path):
    path, kept = tmp_path / "k.sock", tmp_path / "kept"
    path.touch()
    status = os.lstat(path)
    listening = ListeningSocket(socket.socket(), Address(f"unix:{path}", 0), (status.st_dev, status.st_ino))
    # A second name of the file keeps its inode for the successor.
    os.link(path, kept)
    listening.close()
    assert not path.exists()
    os.link(kept, path)
    listening.close()
    assert path.exists()
