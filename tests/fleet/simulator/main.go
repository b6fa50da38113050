// simulator answers as the daemons of many pods: each address of 127/8 is one. It gives the dumps that it is started with, in
// turn, after a delay; some pods never answer.
//
//	simulator --port 7000 --dumps FOLDER --delay 20ms --lost 100
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
)

const process = "processes/7-70"

type simulator struct {
	processes []byte
	dumps     [][]byte
	delay     time.Duration
	// Every so many pods one never answers; 0: all answer.
	lost int
	sent atomic.Int64
}

type podKey struct{}

// podOf numbers the addresses from 127.1.0.0 on.
func podOf(address net.Addr) int {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return 0
	}
	return int(binary.BigEndian.Uint32(tcp.IP.To4()) - binary.BigEndian.Uint32(net.IPv4(127, 1, 0, 0).To4()))
}

// framed is a message of gRPC.
func framed(message proto.Message) ([]byte, error) {
	body, err := proto.Marshal(message)
	if err != nil {
		return nil, err
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	return append(head, body...), nil
}

func (s *simulator) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	io.Copy(io.Discard, request.Body)
	pod, _ := request.Context().Value(podKey{}).(int)
	answer := s.processes
	switch request.URL.Path {
	case stackdv1connect.StackdListProcessesProcedure:
	case stackdv1connect.StackdCreateDumpProcedure:
		if s.lost > 0 && pod%s.lost == s.lost-1 {
			<-request.Context().Done()
			return
		}
		time.Sleep(s.delay)
		answer = s.dumps[pod%len(s.dumps)]
	default:
		http.NotFound(writer, request)
		return
	}
	writer.Header().Set("Content-Type", "application/grpc+proto")
	writer.Header().Set("Trailer", "Grpc-Status")
	writer.Write(answer)
	writer.Header().Set("Grpc-Status", "0")
	s.sent.Add(int64(len(answer)))
}

// read takes dumps as JSON, under the name of the one process of each pod.
func (s *simulator) read(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		dump := &stackdv1.Dump{}
		if err := protojson.Unmarshal(data, dump); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		dump.Name = process + "/dumps/recorded"
		answer, err := framed(dump)
		if err != nil {
			return err
		}
		s.dumps = append(s.dumps, answer)
	}
	if len(s.dumps) == 0 {
		return fmt.Errorf("there is no dump in %s", folder)
	}
	s.processes, err = framed(&stackdv1.ListProcessesResponse{Processes: []*stackdv1.Process{{Name: process}}})
	return err
}

func main() {
	port := flag.Int("port", 0, "port of each pod")
	folder := flag.String("dumps", "", "folder of dumps, *.json")
	s := &simulator{}
	flag.DurationVar(&s.delay, "delay", 0, "time of one dump")
	flag.IntVar(&s.lost, "lost", 0, "every so many pods one never answers")
	flag.Parse()
	if err := s.read(*folder); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: s, Protocols: new(http.Protocols),
		ConnContext: func(ctx context.Context, connection net.Conn) context.Context {
			return context.WithValue(ctx, podKey{}, podOf(connection.LocalAddr()))
		}}
	server.Protocols.SetUnencryptedHTTP2(true)
	fmt.Println("ready")
	// Each line asks for the bytes sent so far.
	go func() {
		var line string
		for {
			if _, err := fmt.Scanln(&line); err == io.EOF {
				os.Exit(0)
			}
			fmt.Println(s.sent.Load())
		}
	}()
	log.Fatal(server.Serve(listener))
}
