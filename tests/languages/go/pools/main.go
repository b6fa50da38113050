// Exhausts the pool of database/sql: main has its connections, and four goroutines want one.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	size    = 2
	waiters = 4
)

// database connects to nothing, at once.
type database struct{}

func (database) Connect(context.Context) (driver.Conn, error) { return connection{}, nil }
func (database) Driver() driver.Driver                        { return nil }

type connection struct{}

func (connection) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no statements") }
func (connection) Close() error                        { return nil }
func (connection) Begin() (driver.Tx, error)           { return nil, errors.New("no transactions") }

//go:noinline
func placeOrder(db *sql.DB) {
	_, err := db.Conn(context.Background())
	fmt.Fprintln(os.Stderr, "got one:", err)
}

func main() {
	db := sql.OpenDB(database{})
	db.SetMaxOpenConns(size)
	for i := 0; i < size; i++ {
		if _, err := db.Conn(context.Background()); err != nil {
			panic(err)
		}
	}
	for i := 0; i < waiters; i++ {
		go placeOrder(db)
	}
	for db.Stats().WaitCount < waiters {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}
