// kubectl-stackd is a plugin of kubectl: one answer for the processes of many pods, with the operator's own rights.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/kubectl"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/version"
)

const usage = `kubectl stackd: one answer for the processes of many pods.

Examples:
  kubectl stackd -n shop -l app=checkout          all pods with this label
  kubectl stackd -n shop checkout-7d9f-x2k        pods by name
  kubectl stackd -A -l app=checkout -o json       of all namespaces, as proto3 JSON of stackd.v1.FleetDump
  kubectl stackd --show targets/shop/checkout-7d9f-x2k/processes/7-70/dumps/20261121T031502123Z-1
                                                  a dump of one pod, by target and dump of an example

It runs stackctl in the daemon's container of each pod, by kubectl exec. No port is open, and no gateway is needed. Who may
exec into a pod sees its stacks.

Exit codes: 0 ok, 1 failure, 2 usage, 3 no pod, 5 partial: some pods have not answered, or not all of them wholly.

Options:
`

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitNoPod   = 3
	exitPartial = 5
)

type options struct {
	kubectl  kubectl.Kubectl
	pods     kubectl.Pods
	request  stackdv1.CreateFleetDumpRequest
	timeout  time.Duration
	parallel int
	output   string
	// A dump of one pod: its target, then its name.
	show    string
	version bool
}

// passed is an option that kubectl itself takes.
type passed struct {
	name string
	to   *[]string
}

func (p passed) String() string { return "" }

func (p passed) Set(value string) error {
	*p.to = append(*p.to, "--"+p.name+"="+value)
	return nil
}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{kubectl: kubectl.Kubectl{Program: "kubectl"}}
	flags := flag.NewFlagSet("kubectl stackd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for _, name := range []string{"n", "namespace"} {
		flags.StringVar(&o.pods.Namespace, name, "", "`NAMESPACE` of the pods; without it that of the kubeconfig")
	}
	for _, name := range []string{"l", "selector"} {
		flags.StringVar(&o.pods.Selector, name, "", "`SELECTOR` of labels, as for kubectl get pods")
	}
	for _, name := range []string{"A", "all-namespaces"} {
		flags.BoolVar(&o.pods.All, name, false, "pods of all namespaces")
	}
	for _, name := range []string{"o", "output"} {
		flags.StringVar(&o.output, name, "text", "`text or json`")
	}
	for _, name := range []string{"context", "kubeconfig", "cluster", "user", "as"} {
		flags.Var(passed{name, &o.kubectl.Cluster}, name, "`VALUE` that kubectl takes")
	}
	flags.StringVar(&o.kubectl.Container, "container", "stackd", "`NAME` of the daemon's container")
	flags.StringVar(&o.request.Process, "process", "", "`TEXT`: only processes whose name holds it")
	flags.StringVar(&o.show, "show", "", "`NAME` of a stored dump, behind that of its target: print it")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "`DURATION` that answers are waited for")
	flags.IntVar(&o.parallel, "parallel", 16, "`NUMBER` of pods asked at once: each is a kubectl")
	flags.BoolVar(&o.version, "version", false, "print the version")
	rest := args
	for {
		err := flags.Parse(rest)
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, usage)
			flags.SetOutput(out)
			flags.PrintDefaults()
			return o, err
		}
		if err != nil {
			return o, errors.New(strings.Replace(err.Error(), "flag provided but not defined: -", "there is no option -", 1))
		}
		// Options may stand behind names, as with kubectl.
		if flags.NArg() == 0 {
			return o, o.check()
		}
		o.pods.Names = append(o.pods.Names, flags.Arg(0))
		rest = flags.Args()[1:]
	}
}

func (o *options) check() error {
	switch {
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("-o is text or json, and not %q", o.output)
	case o.parallel < 1 || o.parallel > 256:
		return errors.New("--parallel is from 1 to 256")
	case o.timeout <= 0:
		return errors.New("--timeout is more than 0")
	case o.show != "" && !shownName.MatchString(o.show):
		return errors.New("--show takes a name like targets/shop/checkout-1/processes/7-70/dumps/20261121T031502123Z-1")
	case o.pods.All && len(o.pods.Names) > 0:
		return errors.New("pods by name are of one namespace: leave out -A")
	}
	return nil
}

var shownName = regexp.MustCompile(`^targets/([a-z0-9.-]+)/([a-z0-9][a-z0-9.-]*)/(processes/[0-9-]+/dumps/[0-9A-Za-z_-]+)$`)

// show prints a dump of one pod.
func show(ctx context.Context, o *options) int {
	parts := shownName.FindStringSubmatch(o.show)
	text, err := o.kubectl.Show(ctx, parts[1], parts[2], parts[3], o.output)
	if err != nil {
		complain(fmt.Errorf("%w. A gateway with history has dumps of pods that are gone", err))
		return exitFailure
	}
	fmt.Print(text)
	return exitOK
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		complain(err)
		fmt.Fprintln(os.Stderr, "See kubectl stackd --help.")
		os.Exit(exitUsage)
	case o.version:
		fmt.Println("kubectl-stackd " + version.Version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

func complain(err error) { fmt.Fprintf(os.Stderr, "kubectl stackd: %v\n", err) }

func run(ctx context.Context, o *options) int {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.show != "" {
		return show(ctx, o)
	}
	found, without, err := o.kubectl.List(ctx, o.pods)
	if err != nil {
		complain(err)
		return exitFailure
	}
	if len(found) == 0 {
		complain(fmt.Errorf("no pod has a container %s; %d were looked at", o.kubectl.Container, len(without)))
		return exitNoPod
	}
	if len(without) > 0 {
		complain(fmt.Errorf("left out are pods without a container %s: %d, as %s", o.kubectl.Container, len(without), without[0]))
	}
	o.request.Selector = strings.Join(append(strings.Fields(o.pods.Selector), o.pods.Names...), " ")
	collector := collect.Collector{Asker: &o.kubectl, Parallel: o.parallel}
	dump := collector.Collect(ctx, found, &o.request, func(collect.Progress) {})
	dump.Lines = merge.Lines(dump)
	if o.output == "json" {
		fmt.Println(protojson.Format(dump))
	} else {
		fmt.Println(strings.Join(dump.Lines, "\n"))
	}
	if dump.State != stackdv1.FleetDump_COMPLETE {
		return exitPartial
	}
	return exitOK
}
