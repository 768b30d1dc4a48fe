// Participant connects participants of conferences with LiveKit's Go SDK, for tests: in a program and a module of its own, because
// the SDK's dependencies are not those of berth. It reads a list of participants from standard input, one JSON object per line,
// and writes what happens to standard output, until its input ends. Publishers send numbered packets, so that a listener knows
// how long it received nothing and how many packets it missed.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/livekit/protocol/livekit"
	protologger "github.com/livekit/protocol/logger"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
)

// frame is the duration of a packet, and quiet the pause between two of them from which on it is reported.
const frame, quiet = 20 * time.Millisecond, 100 * time.Millisecond

type participant struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Token   string `json:"token"`
	Publish bool   `json:"publish"`
}

// event is one line of the output. Silence is the time between the packets before and after a pause, or before and after a new
// subscription; Lost the number of packets in between.
type event struct {
	Name      string `json:"name"`
	Event     string `json:"event"`
	At        int64  `json:"at"` // Unix ms
	From      string `json:"from,omitempty"`
	SilenceMs int64  `json:"silenceMs,omitempty"`
	Lost      int64  `json:"lost,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

var out = struct {
	sync.Mutex
	*json.Encoder
}{Encoder: json.NewEncoder(os.Stdout)}

func (p participant) report(e event) {
	out.Lock()
	defer out.Unlock()
	e.Name, e.At = p.Name, time.Now().UnixMilli()
	_ = out.Encode(e) // the test that reads it may have ended
}

func main() {
	lksdk.SetLogger(protologger.GetDiscardLogger())
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p participant
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			panic(err)
		}
		go p.join()
	}
}

func (p participant) join() {
	in := &reception{p: p, last: map[string]packet{}}
	var room *lksdk.Room
	joined := make(chan struct{})
	reconnected := func() { // the SDK calls back before the connection is made, and does not notice if it breaks until then
		<-joined
		for room.ConnectionState() == lksdk.ConnectionStateReconnecting {
			time.Sleep(10 * time.Millisecond)
		}
		p.report(event{Event: "reconnected"})
	}
	callback := &lksdk.RoomCallback{
		OnReconnecting: func() { p.report(event{Event: "reconnecting"}) },
		OnReconnected:  func() { go reconnected() },
		OnDisconnectedWithReason: func(reason lksdk.DisconnectionReason) {
			p.report(event{Event: "disconnected", Reason: string(reason)})
		},
		ParticipantCallback: lksdk.ParticipantCallback{
			OnDataPacket: func(data lksdk.DataPacket, _ lksdk.DataReceiveParams) {
				if user, ok := data.(*lksdk.UserDataPacket); ok {
					p.report(event{Event: "data", Reason: string(user.Payload)})
				}
			},
			OnTrackSubscribed: func(track *webrtc.TrackRemote, _ *lksdk.RemoteTrackPublication, from *lksdk.RemoteParticipant) {
				in.listen(track, from.Identity())
			},
		},
	}
	var err error
	room, err = lksdk.ConnectToRoomWithToken(p.URL, p.Token, callback, lksdk.WithAutoSubscribe(!p.Publish))
	if err != nil {
		p.report(event{Event: "refused", Reason: strings.ReplaceAll(err.Error(), p.Token, "token")})
		return
	}
	close(joined)
	p.report(event{Event: "joined"})
	if p.Publish {
		p.publish(room)
	}
}

// publish sends numbered packets for as long as the program runs.
func (p participant) publish(room *lksdk.Room) {
	track, err := lksdk.NewLocalSampleTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2})
	if err == nil {
		_, err = room.LocalParticipant.PublishTrack(track, &lksdk.TrackPublicationOptions{Name: "numbers", Source: livekit.TrackSource_MICROPHONE})
	}
	if err != nil {
		p.report(event{Event: "refused", Reason: err.Error()})
		return
	}
	tick := time.NewTicker(frame)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		data := make([]byte, 80)
		data[0] = 0xfc // an Opus packet of one 20 ms frame
		binary.BigEndian.PutUint64(data[1:], n)
		_ = track.WriteSample(media.Sample{Data: data, Duration: frame}, nil) // not connected now
		<-tick.C
	}
}

// reception notes the last packet of each publisher, also across connections.
type reception struct {
	p    participant
	mu   sync.Mutex
	last map[string]packet
}

type packet struct {
	number uint64
	at     time.Time
}

func (e *reception) listen(track *webrtc.TrackRemote, from string) {
	e.p.report(event{Event: "subscribed", From: from})
	for first := true; ; {
		p, _, err := track.ReadRTP()
		if err != nil {
			e.p.report(event{Event: "unsubscribed", From: from})
			return
		}
		if len(p.Payload) < 9 || p.Payload[0] != 0xfc {
			continue // silence that the server adds
		}
		if e.receive(from, packet{binary.BigEndian.Uint64(p.Payload[1:]), time.Now()}, first) {
			first = false
		}
	}
}

// receive reports whether the packet is later than the last one.
func (e *reception) receive(from string, now packet, first bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, ok := e.last[from]
	switch {
	case !ok:
		e.p.report(event{Event: "received", From: from})
	case now.number <= before.number:
		return false
	case first || now.at.Sub(before.at) >= quiet:
		e.p.report(event{Event: "silence", From: from, SilenceMs: now.at.Sub(before.at).Milliseconds(), Lost: int64(now.number - before.number - 1)})
	}
	e.last[from] = now
	return true
}
