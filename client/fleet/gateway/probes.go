package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// Scrapers and kubelets, each with a connection or two.
	maxProbeConnections = 64
	maxProbeTime        = 10 * time.Second
)

// ServeMetrics answers /metrics, /livez and /readyz until the context ends. It has no TLS and knows no callers: kubelets and
// scrapers show no certificate, and nothing there names a pod.
func ServeMetrics(ctx context.Context, listener net.Listener, service *Service, log *slog.Logger) error {
	server := &http.Server{
		Handler: probes(service), ReadHeaderTimeout: maxProbeTime, ReadTimeout: maxProbeTime, WriteTimeout: maxProbeTime,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(limited(listener, maxProbeConnections, func() {})); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func probes(service *Service) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(service.measures.registry, promhttp.HandlerOpts{Timeout: maxProbeTime / 2, MaxRequestsInFlight: 4}))
	pages.HandleFunc("GET /livez", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	pages.HandleFunc("GET /readyz", func(writer http.ResponseWriter, request *http.Request) {
		if err := service.ready(request.Context()); err != nil {
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(writer, "ok")
	})
	return pages
}

var errEnding = errors.New("stackd-gateway is shutting down")

// ready is whether callers should come here. A gateway that has known its targets once stays so: it has the last ones.
func (s *Service) ready(ctx context.Context) error {
	if s.ending.Load() {
		return errEnding
	}
	if s.hasKnown.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxScrapeLook)
	defer cancel()
	_, err := s.listAll(ctx)
	return err
}
