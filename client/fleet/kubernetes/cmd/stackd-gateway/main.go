// stackd-gateway with EndpointSlices as a source of daemons, and callers by their tokens: the build for a cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"stackd.example/fleet/gateway"
	"stackd.example/fleet/kubernetes/endpoints"
	"stackd.example/fleet/kubernetes/reviews"
	"stackd.example/fleet/program"
	"stackd.example/fleet/targets"
)

func main() { program.Main(&cluster{}) }

// cluster is what the API server knows: Services of --targets-service, and callers of --access-tokens.
type cluster struct {
	names      []string
	kubeconfig string
	tokens     bool
	audience   string
}

func (c *cluster) AddFlags(flags *flag.FlagSet) {
	flags.Func("targets-service", "`NAMESPACE/NAME[:PORT]` of a headless Service, whose EndpointSlices are watched; */NAME: in all namespaces; may be repeated",
		func(value string) error {
			c.names = append(c.names, value)
			return nil
		})
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "`FILE` that says which API server; without it that of the gateway's own pod")
	flags.BoolVar(&c.tokens, "access-tokens", false, "callers may show a token of the cluster: they see the namespaces in which they may get pods/stackd")
	flags.StringVar(&c.audience, "access-audience", "", "`NAME` that tokens of callers must be made for; without it that of the API server")
}

func (c *cluster) Asked() bool { return len(c.names) > 0 }

func (c *cluster) Sources(ctx context.Context, log *slog.Logger) ([]targets.Source, error) {
	if !c.Asked() {
		return nil, nil
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	var sources []targets.Source
	for _, name := range c.names {
		service, err := endpoints.Watch(ctx, config, name)
		if err != nil {
			return nil, fmt.Errorf("--targets-service %w", err)
		}
		sources = append(sources, service)
	}
	log.Info("watching endpoint slices", "services", strings.Join(c.names, " "), "server", config.Host)
	return sources, nil
}

func (c *cluster) KnowsTokens() bool { return c.tokens }

func (c *cluster) Reviewer() (gateway.Reviewer, error) {
	if !c.tokens {
		return nil, nil
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return reviews.New(config, c.audience)
}

func (c *cluster) config() (*rest.Config, error) {
	if c.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--targets-service and --access-tokens need --kubeconfig outside of a cluster: %w", err)
	}
	return config, nil
}
