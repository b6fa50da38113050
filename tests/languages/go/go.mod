module stackd.example/victims

go 1.21

require stackd.example/go v0.1.0

replace stackd.example/go => ../../../agent/go
