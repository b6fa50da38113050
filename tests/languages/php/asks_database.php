<?php

// Asks a server that never answers.
class Orders
{
    public function find(): string
    {
        $connection = stream_socket_client('tcp://127.0.0.1:' . $_GET['port']);
        fwrite($connection, "SELECT\n");
        return fgets($connection);
    }
}

(new Orders)->find();
