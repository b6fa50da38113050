package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer lists and watches endpoint slices, as far as an informer asks for it.
type apiServer struct {
	mutex   sync.Mutex
	version int
	slices  map[string]*discovery.EndpointSlice
	// What changed in each version from `oldest` on.
	events  []event
	oldest  int
	changed chan struct{}
	// What each call is refused with; 0: none is.
	refusal int
	lists   int
	server  *httptest.Server
}

type event struct {
	version int
	kind    string
	slice   *discovery.EndpointSlice
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{version: 1, slices: map[string]*discovery.EndpointSlice{}, changed: make(chan struct{})}
	a.server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
	})
	return a
}

func (a *apiServer) config() *rest.Config { return &rest.Config{Host: a.server.URL} }

// set puts a slice there, or takes it away.
func (a *apiServer) set(name string, slice *discovery.EndpointSlice) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.version++
	kind := "ADDED"
	switch _, was := a.slices[name]; {
	case slice == nil:
		kind, slice = "DELETED", a.slices[name]
	case was:
		kind = "MODIFIED"
	}
	slice = slice.DeepCopy()
	slice.Name, slice.Namespace, slice.ResourceVersion = name, "shop", strconv.Itoa(a.version)
	slice.Labels = map[string]string{discovery.LabelServiceName: "stackd"}
	if a.slices[name] = slice; kind == "DELETED" {
		delete(a.slices, name)
	}
	a.events = append(a.events, event{a.version, kind, slice})
	close(a.changed)
	a.changed = make(chan struct{})
}

// forget makes earlier versions too old to watch from, and ends all watches.
func (a *apiServer) forget() {
	a.mutex.Lock()
	a.version++
	a.oldest, a.events = a.version, nil
	a.mutex.Unlock()
	a.server.CloseClientConnections()
}

func (a *apiServer) refuse(code int) {
	a.mutex.Lock()
	a.refusal = code
	a.mutex.Unlock()
	a.server.CloseClientConnections()
}

func status(writer http.ResponseWriter, code int, reason metav1.StatusReason) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	json.NewEncoder(writer).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Code: int32(code), Reason: reason, Message: "refused: " + string(reason)})
}

func (a *apiServer) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	a.mutex.Lock()
	refusal := a.refusal
	a.mutex.Unlock()
	switch {
	case refusal != 0:
		status(writer, refusal, metav1.StatusReasonForbidden)
	case request.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
		query.Get("labelSelector") != discovery.LabelServiceName+"=stackd":
		status(writer, http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("sendInitialEvents") == "true":
		// As a server does that does not know it: the informer lists then.
		status(writer, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "":
		a.watch(writer, request)
	default:
		a.list(writer)
	}
}

func (a *apiServer) list(writer http.ResponseWriter) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.lists++
	list := discovery.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, slice := range a.slices {
		list.Items = append(list.Items, *slice)
	}
	writer.Header().Set("Content-Type", "application/json")
	json.NewEncoder(writer).Encode(list)
}

func (a *apiServer) watch(writer http.ResponseWriter, request *http.Request) {
	from, _ := strconv.Atoi(request.URL.Query().Get("resourceVersion"))
	writer.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(writer)
	for {
		a.mutex.Lock()
		changed, expired := a.changed, from < a.oldest
		var due []event
		for _, one := range a.events {
			if one.version > from {
				due = append(due, one)
			}
		}
		a.mutex.Unlock()
		if expired {
			encoder.Encode(map[string]any{"type": "ERROR", "object": metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}})
			return
		}
		for _, one := range due {
			one.slice.TypeMeta = metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}
			encoder.Encode(map[string]any{"type": one.kind, "object": one.slice})
			from = one.version
		}
		if flusher, ok := writer.(http.Flusher); ok {
			flusher.Flush()
		}
		select {
		case <-changed:
		case <-request.Context().Done():
			return
		}
	}
}

// sliceOf has an endpoint for each pod: 10.A.B.C of its number.
func sliceOf(pods ...int) *discovery.EndpointSlice {
	port, portName, node, ready := int32(7443), PortName, "node-a", true
	slice := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &portName, Port: &port}}}
	for _, pod := range pods {
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", pod>>16, pod>>8&255, pod&255)},
			Conditions: discovery.EndpointConditions{Ready: &ready}, NodeName: &node,
			TargetRef: podReference(fmt.Sprintf("checkout-7d9f8b6c5d-x%04d", pod))})
	}
	return slice
}
