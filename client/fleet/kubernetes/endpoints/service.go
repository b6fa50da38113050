// Package endpoints finds daemons by the EndpointSlices of a Service, listed and watched by client-go's informer.
//
// The Service is headless, and has publishNotReadyAddresses: a hung pod is not ready, and is the one that is looked for.
package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"stackd.example/fleet/targets"
)

// Service is a source of the endpoints of one Service, or of the Services of one name in all namespaces.
type Service struct {
	// "*": all namespaces.
	namespace, name string
	// The number of the daemons' port; 0: that of each slice's port "stackd".
	port int32

	slices    cache.Store
	hasSynced func() bool

	mutex sync.Mutex
	fault error
}

// PortName is the port of a Service that daemons listen at.
const PortName = "stackd"

// Watch begins to list and watch until the context ends. `service` is NAMESPACE/NAME[:PORT].
func Watch(ctx context.Context, config *rest.Config, service string) (*Service, error) {
	found, err := parse(service)
	if err != nil {
		return nil, err
	}
	client, err := clientOf(config)
	if err != nil {
		return nil, err
	}
	namespace := found.namespace
	if namespace == "*" {
		namespace = metav1.NamespaceAll
	}
	listWatch := cache.NewFilteredListWatchFromClient(client, "endpointslices", namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = discovery.LabelServiceName + "=" + found.name
	})
	listWatch.WatchFuncWithContext = found.noting(listWatch.WatchFuncWithContext)
	informer := cache.NewSharedInformer(listWatch, &discovery.EndpointSlice{}, 0)
	if err := errors.Join(informer.SetWatchErrorHandler(func(_ *cache.Reflector, fault error) { found.note(fault) }),
		informer.SetTransform(slimmed)); err != nil {
		return nil, err
	}
	found.slices, found.hasSynced = informer.GetStore(), informer.HasSynced
	go informer.RunWithContext(ctx)
	return found, nil
}

var serviceName = regexp.MustCompile(`^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(?::([0-9]{1,5}))?$`)

func parse(service string) (*Service, error) {
	parts := serviceName.FindStringSubmatch(service)
	if parts == nil {
		return nil, fmt.Errorf("%q: write like shop/stackd or shop/stackd:7443, or */stackd for all namespaces", service)
	}
	found := &Service{namespace: parts[1], name: parts[3]}
	if parts[5] != "" {
		port, err := strconv.ParseUint(parts[5], 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%q: %s is no port", service, parts[5])
		}
		found.port = int32(port)
	}
	return found, nil
}

// clientOf knows this one kind of resource: the clients of all kinds would take minutes to compile.
func clientOf(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := discovery.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, discovery.SchemeGroupVersion)
	own := rest.CopyConfig(config)
	own.GroupVersion = &discovery.SchemeGroupVersion
	own.APIPath = "/apis"
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	own.UserAgent = "stackd-gateway"
	return rest.RESTClientFor(own)
}

// slimmed drops what is not looked at: there may be thousands.
func slimmed(object any) (any, error) {
	if slice, ok := object.(*discovery.EndpointSlice); ok {
		slice.ManagedFields, slice.Annotations, slice.OwnerReferences = nil, nil, nil
	}
	return object, nil
}

// noting remembers why a watch cannot begin, and forgets it when one does. The informer tries again by itself, and tells not all.
func (s *Service) noting(inner cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		begun, err := inner(ctx, options)
		s.note(err)
		return begun, err
	}
}

func (s *Service) note(fault error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.fault = fault
}

func (s *Service) String() string { return "service " + s.namespace + "/" + s.name }

func (s *Service) lastFault() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.fault
}

// Targets returns the endpoints of now. While the API server is away these are the last ones, with an error that says so.
func (s *Service) Targets(context.Context) ([]targets.Target, error) {
	fault := s.lastFault()
	if !s.hasSynced() {
		if fault != nil {
			return nil, fmt.Errorf("the API server has not listed them: %w", fault)
		}
		return nil, errors.New("the API server has not listed them yet")
	}
	var all []targets.Target
	without := 0
	for _, object := range s.slices.List() {
		slice, ok := object.(*discovery.EndpointSlice)
		if !ok {
			continue
		}
		port := s.portOf(slice)
		if port == 0 {
			without++
			continue
		}
		for i := range slice.Endpoints {
			if target, ok := targetOf(slice, &slice.Endpoints[i], port); ok {
				all = append(all, target)
			}
		}
	}
	if fault != nil {
		return all, fmt.Errorf("the API server does not answer, these are the last ones it listed: %w", fault)
	}
	if without > 0 {
		return all, fmt.Errorf("%d slices have no port named %s: name it so in the Service, or write the number as in %s/%s:7443",
			without, PortName, s.namespace, s.name)
	}
	return all, nil
}

func (s *Service) portOf(slice *discovery.EndpointSlice) int32 {
	if s.port != 0 {
		return s.port
	}
	for _, port := range slice.Ports {
		if port.Port != nil && (len(slice.Ports) == 1 || port.Name != nil && *port.Name == PortName) {
			return *port.Port
		}
	}
	return 0
}

func targetOf(slice *discovery.EndpointSlice, endpoint *discovery.Endpoint, port int32) (targets.Target, bool) {
	if len(endpoint.Addresses) == 0 || slice.AddressType == discovery.AddressTypeFQDN || net.ParseIP(endpoint.Addresses[0]) == nil {
		return targets.Target{}, false
	}
	labels := map[string]string{targets.NamespaceLabel: slice.Namespace, "service": slice.Labels[discovery.LabelServiceName],
		// Without a word of it an endpoint is ready.
		"ready": strconv.FormatBool(endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready)}
	if endpoint.NodeName != nil {
		labels["node"] = *endpoint.NodeName
	}
	if endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" {
		labels[targets.PodLabel] = endpoint.TargetRef.Name
		labels["workload"] = workloadOf(endpoint.TargetRef.Name)
	}
	return targets.Target{Address: net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(port))), Labels: labels}, true
}

// As Kubernetes makes names: of a Deployment's pod, of a DaemonSet's, and of a StatefulSet's.
var podNames = regexp.MustCompile(`^(.+?)(?:-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]+)$`)

// workloadOf takes the name apart: who owns a pod stands in the pod, which the gateway may not read.
func workloadOf(pod string) string {
	if parts := podNames.FindStringSubmatch(pod); parts != nil {
		return strings.TrimSuffix(parts[1], "-")
	}
	return pod
}
