package history

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// FuzzAnswer has a store say anything: no answer ends the gateway, and what is taken of it is bounded.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"streams","result":[{"stream":{"stackd_fingerprint":"` + null +
		`","stackd_dump_name":"` + name + `","k8s_pod_name":"a"},"values":[["1","a line"]]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"streams","result":[{"values":[["1"]]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store, err := NewLoki(Loki{URL: "http://loki"})
		if err != nil {
			t.Fatal(err)
		}
		lines, err := store.(*loki).parse(text)
		if err != nil && reasonOf(err) != BadAnswer {
			t.Errorf("%v", err)
		}
		merged := newMerging()
		for _, one := range lines {
			if record, err := recordOf(one); err == nil {
				merged.add(record)
			}
		}
		for _, one := range merged.listing().Groups {
			// Names of 253 bytes, ten dumps, one explanation.
			if proto.Size(one) > 60*300+10*1000+2000 {
				t.Errorf("a group of %d bytes", proto.Size(one))
			}
		}
	})
}

// FuzzBody has it give anything as a dump.
func FuzzBody(f *testing.F) {
	good := `{"name":"` + name + `"}`
	f.Add(packed(good), sent(0, "a", good).Labels[digestLabel])
	f.Fuzz(func(t *testing.T, body, digest string) {
		dump, err := unpack(body, Record{Dump: name, Digest: digest})
		if err != nil && reasonOf(err) != Damaged || err == nil && dump.GetName() != name {
			t.Errorf("%v %v", dump, err)
		}
	})
}
