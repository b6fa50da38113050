// stackd-gateway gives one answer for the processes of many pods: it asks their daemons, and merges what they answer.
package main

import "stackd.example/fleet/program"

func main() { program.Main() }
