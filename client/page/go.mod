module stackd.example/page

go 1.26.0
