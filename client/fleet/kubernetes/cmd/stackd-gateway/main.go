// stackd-gateway with EndpointSlices as a source of daemons: the build for a cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"stackd.example/fleet/kubernetes/endpoints"
	"stackd.example/fleet/program"
	"stackd.example/fleet/targets"
)

func main() { program.Main(&services{}) }

// services are those of --targets-service.
type services struct {
	names      []string
	kubeconfig string
}

func (s *services) AddFlags(flags *flag.FlagSet) {
	flags.Func("targets-service", "`NAMESPACE/NAME[:PORT]` of a headless Service, whose EndpointSlices are watched; */NAME: in all namespaces; may be repeated",
		func(value string) error {
			s.names = append(s.names, value)
			return nil
		})
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` that says which API server; without it that of the gateway's own pod")
}

func (s *services) Asked() bool { return len(s.names) > 0 }

func (s *services) Sources(ctx context.Context, log *slog.Logger) ([]targets.Source, error) {
	if !s.Asked() {
		return nil, nil
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	var sources []targets.Source
	for _, name := range s.names {
		service, err := endpoints.Watch(ctx, config, name)
		if err != nil {
			return nil, fmt.Errorf("--targets-service %w", err)
		}
		sources = append(sources, service)
	}
	log.Info("watching endpoint slices", "services", strings.Join(s.names, " "), "server", config.Host)
	return sources, nil
}

func (s *services) config() (*rest.Config, error) {
	if s.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--targets-service needs --kubeconfig outside of a cluster: %w", err)
	}
	return config, nil
}
