// Package program is stackd-gateway: its options, and what it starts.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"stackd.example/fleet/collect"
	"stackd.example/fleet/gateway"
	"stackd.example/fleet/history"
	"stackd.example/fleet/targets"
	"stackd.example/fleet/version"
)

const usage = `stackd-gateway: one answer for the processes of many pods.

Examples:
  stackd-gateway --targets-file targets.json
      Daemons of a file in the form of Prometheus' file_sd, for callers of this machine.
  stackd-gateway --targets-dns dns:///stackd.shop.svc:7443 --listen 0.0.0.0:7447 \
      --tls-cert tls.crt --tls-key tls.key --tls-client-ca callers.crt --access access.yaml \
      --daemon-tls-cert tls.crt --daemon-tls-key tls.key --daemon-tls-ca daemons.crt --daemon-tls-name stackd
      All pods of a headless Service. Callers and daemons are told apart by their certificates.
  stackd-gateway --targets-file targets.json --metrics-listen 0.0.0.0:7445
      /metrics for Prometheus, /livez and /readyz for probes.
  stackd-gateway --targets-file targets.json --history-loki http://loki.monitoring:3100
      Also crashes, hangs and dumps of pods that are gone, out of Loki.
  grpcurl -plaintext -d '{}' 127.0.0.1:7447 stackd.v1.Fleet/ListTargets
  grpcurl -plaintext -d '{"selector": "workload=checkout"}' 127.0.0.1:7447 stackd.v1.Fleet/CreateFleetDump

Options:
`

type options struct {
	listen   string
	metrics  string
	files    list
	names    list
	access   string
	callers  gateway.CallerTLS
	daemons  collect.TLS
	history  history.Loki
	parallel int
	version  bool
}

// Finder is what a build may have besides files, DNS and certificates: a source of daemons, and a judge of callers.
type Finder interface {
	// AddFlags adds the finder's own options.
	AddFlags(flags *flag.FlagSet)
	// Sources returns what the options ask for. What is begun for it ends with the context.
	Sources(ctx context.Context, log *slog.Logger) ([]targets.Source, error)
	// Asked is whether the options ask for any.
	Asked() bool
	// Reviewer knows callers by their tokens, if the options ask for that; nil: they do not.
	Reviewer() (gateway.Reviewer, error)
	// KnowsTokens is whether they do.
	KnowsTokens() bool
}

// list is an option that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func parse(args []string, out io.Writer, finders []Finder) (options, error) {
	var o options
	flags := flag.NewFlagSet("stackd-gateway", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7447", "`HOST:PORT` to serve gRPC, gRPC-Web and Connect on; beyond loopback with TLS only")
	flags.StringVar(&o.metrics, "metrics-listen", "none", "`HOST:PORT` to serve /metrics, /livez and /readyz on, over plain HTTP; none: nowhere")
	flags.Var(&o.files, "targets-file", "`FILE` of daemons in the form of file_sd; * in its last part stands for any characters; may be repeated")
	flags.Var(&o.names, "targets-dns", "`dns:///HOST:PORT`: each address of the name is a daemon; may be repeated")
	flags.StringVar(&o.access, "access", "", "`FILE` of roles by certificate, in the form of the daemon's --access")
	flags.StringVar(&o.callers.Certificate, "tls-cert", "", "`FILE`: certificate shown to callers")
	flags.StringVar(&o.callers.Key, "tls-key", "", "`FILE`: its key")
	flags.StringVar(&o.callers.Authority, "tls-client-ca", "", "`FILE`: authority of the callers' certificates")
	flags.StringVar(&o.daemons.Certificate, "daemon-tls-cert", "", "`FILE`: certificate shown to daemons, with the role dump there")
	flags.StringVar(&o.daemons.Key, "daemon-tls-key", "", "`FILE`: its key")
	flags.StringVar(&o.daemons.Authority, "daemon-tls-ca", "", "`FILE`: authority of the daemons' certificates")
	flags.StringVar(&o.daemons.ServerName, "daemon-tls-name", "", "`NAME` in the daemons' certificates; without it the host of each target")
	flags.StringVar(&o.history.URL, "history-loki", "", "`URL` of Loki, where daemons' collectors write: crashes, hangs and dumps of pods that are gone")
	flags.StringVar(&o.history.Tenant, "history-loki-tenant", "", "`NAME` of the tenant there")
	flags.StringVar(&o.history.TokenFile, "history-loki-token", "", "`FILE` with a bearer token for it")
	flags.StringVar(&o.history.Streams, "history-loki-streams", "", "`SELECTOR` of the streams that daemons write, in LogQL; without it those of all services")
	flags.IntVar(&o.parallel, "parallel", 128, "`NUMBER` of daemons asked at once")
	flags.BoolVar(&o.version, "version", false, "print the version")
	for _, finder := range finders {
		finder.AddFlags(flags)
	}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, errors.New(strings.Replace(err.Error(), "flag provided but not defined: -", "there is no option --", 1))
	}
	o.callers.Tokens = slices.ContainsFunc(finders, Finder.KnowsTokens)
	return o, o.check(flags.Args(), finders)
}

func (o options) check(rest []string, finders []Finder) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q is no option", rest[0])
	}
	if o.version {
		return nil
	}
	if len(o.files)+len(o.names) == 0 && !slices.ContainsFunc(finders, Finder.Asked) {
		return errors.New("which daemons? Give --targets-file or another of the --targets options")
	}
	if o.parallel < 1 || o.parallel > 1000 {
		return errors.New("--parallel is from 1 to 1000")
	}
	given := count(o.callers.Certificate, o.callers.Key, o.callers.Authority)
	if given != 0 && given != 3 && !(o.callers.Tokens && given == 2 && o.callers.Authority == "") {
		return errors.New("--tls-cert, --tls-key and --tls-client-ca go together")
	}
	if given := count(o.daemons.Certificate, o.daemons.Key, o.daemons.Authority); given != 0 && given != 3 {
		return errors.New("--daemon-tls-cert, --daemon-tls-key and --daemon-tls-ca go together")
	}
	if o.history.URL == "" && count(o.history.Tenant, o.history.TokenFile, o.history.Streams) != 0 {
		return errors.New("the --history-loki-... options need --history-loki, which says where Loki is")
	}
	return gateway.CheckListen(o.listen, o.callers)
}

func count(values ...string) (given int) {
	for _, value := range values {
		if value != "" {
			given++
		}
	}
	return given
}

// Main runs the program, and ends it.
func Main(finders ...Finder) {
	o, err := parse(os.Args[1:], os.Stdout, finders)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "stackd-gateway: %v; see --help\n", err)
		os.Exit(2)
	case o.version:
		fmt.Println("stackd-gateway " + version.Version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o, finders); err != nil {
		fmt.Fprintf(os.Stderr, "stackd-gateway: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, finders []Finder) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: asDaemonsName}))
	sources, err := sourcesOf(ctx, o)
	if err != nil {
		return err
	}
	access, err := gateway.OpenAccess(o.access, func(fault error) { log.Error("--access: " + fault.Error()) })
	if err != nil {
		return err
	}
	for _, finder := range finders {
		found, err := finder.Sources(ctx, log)
		if err != nil {
			return err
		}
		sources = append(sources, found...)
		if reviewer, err := finder.Reviewer(); err != nil {
			return err
		} else if reviewer != nil {
			access.UseTokens(reviewer)
		}
	}
	daemons, err := collect.NewDaemons(o.daemons)
	if err != nil {
		return err
	}
	var past history.Store
	if o.history.URL != "" {
		if past, err = history.NewLoki(o.history); err != nil {
			return fmt.Errorf("--history-loki: %w", err)
		}
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	service := gateway.NewService(sources, &collect.Collector{Asker: daemons, Opener: daemons, Parallel: o.parallel}, past)
	if o.metrics != "none" {
		metrics, err := net.Listen("tcp", o.metrics)
		if err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
		log.Info("serving metrics", "address", metrics.Addr().String())
		// Probes and scrapers are answered until the last call has ended.
		until, stop := context.WithCancel(context.Background())
		defer stop()
		go func() {
			if err := gateway.ServeMetrics(until, metrics, service, log); err != nil {
				log.Error("--metrics-listen: " + err.Error())
			}
		}()
	}
	log.Info("serving", "address", listener.Addr().String())
	return gateway.Serve(ctx, listener, service, access, o.callers, log)
}

// sourcesOf reads each file once, so that a fault in it is told at the start. DNS may come later than the gateway.
func sourcesOf(ctx context.Context, o options) ([]targets.Source, error) {
	var sources []targets.Source
	for _, pattern := range o.files {
		file := targets.NewFile(pattern)
		if _, err := file.Targets(ctx); err != nil {
			return nil, fmt.Errorf("--targets-file %s: %w", pattern, err)
		}
		sources = append(sources, file)
	}
	for _, url := range o.names {
		name, err := targets.NewDNS(url)
		if err != nil {
			return nil, fmt.Errorf("--targets-dns %w", err)
		}
		sources = append(sources, name)
	}
	return sources, nil
}

// asDaemonsName gives a line of the log the keys that lines of a daemon have.
func asDaemonsName(_ []string, attribute slog.Attr) slog.Attr {
	switch attribute.Key {
	case slog.TimeKey:
		attribute.Key = "ts"
	case slog.LevelKey:
		level := strings.ToLower(attribute.Value.String())
		if level == "warn" {
			level = "warning"
		}
		attribute.Value = slog.StringValue(level)
	}
	return attribute
}
