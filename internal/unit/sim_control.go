package unit

import (
	"encoding/json"
	"net/http"
	"slices"

	"berth"
)

// simView is the state of a simulated media server.
type simView struct {
	Fault       Fault             `json:"fault"`
	Incarnation berth.Incarnation `json:"incarnation"`
	Conferences []Copy            `json:"conferences"`
}

const controlBytes = 64 << 10

// Control returns a handler for faults on demand, for tests with a simulated unit in another process: GET / returns the
// state; PUT /fault {"fault": …}, POST /restart, PUT and DELETE /conferences/{e164} change it and return it.
func (s *Sim) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { s.show(w) })
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, _ *http.Request) { s.Restart(); s.show(w) })
	mux.HandleFunc("PUT /fault", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Fault Fault `json:"fault"`
		}
		if !read(w, r, &in) {
			return
		}
		if !slices.Contains(Faults(), in.Fault) {
			http.Error(w, "fault: must be unresponsive, half-dead, refuse, slow or empty", http.StatusBadRequest)
			return
		}
		s.Fail(in.Fault)
		s.show(w)
	})
	mux.HandleFunc("PUT /conferences/{e164}", func(w http.ResponseWriter, r *http.Request) {
		var in Copy
		if !read(w, r, &in) {
			return
		}
		in.E164 = r.PathValue("e164")
		if err := berth.ValidE164("e164", in.E164); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.Put(in)
		s.show(w)
	})
	mux.HandleFunc("DELETE /conferences/{e164}", func(w http.ResponseWriter, r *http.Request) {
		s.End(r.PathValue("e164"))
		s.show(w)
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, controlBytes)).Decode(into); err != nil {
		http.Error(w, "the body is not valid JSON of the expected form", http.StatusBadRequest)
		return false
	}
	return true
}

func (s *Sim) show(w http.ResponseWriter) {
	out := simView{Conferences: s.Copies()}
	s.do(func(st *simState) { out.Fault, out.Incarnation = st.fault, st.incarnation })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // fails only if the caller has left
}
