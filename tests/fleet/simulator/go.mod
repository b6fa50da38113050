module stackd.example/fleet-simulator

go 1.26.0

require (
	google.golang.org/protobuf v1.36.12
	stackd.example/fleet v0.0.0
)

require connectrpc.com/connect v1.21.1 // indirect

replace (
	stackd.example/fleet => ../../../client/fleet
	stackd.example/page => ../../../client/page
)
