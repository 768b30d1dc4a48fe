// One participant's connection to a conference, with an unmodified LiveKit client.
import {
  ConnectionError, ConnectionErrorReason, ConnectionState, DisconnectReason, Room, RoomEvent, setLogLevel, Track, type LocalParticipant, type Participant, type RemoteParticipant, type TrackPublication,
} from 'livekit-client';
import { Problem } from '../lib/api';
import type { ConferenceEvent, ParticipationEvent, RedeemOutputBody } from '../lib/openapi';
import { follow } from '../lib/sse';
import { Choice } from './choice';
import { Moves, type Move } from './moves';
import { same, shown, type Person, type Present } from './presence';
import { Repair } from './repair';

/** What the tab keeps, so that after a reload the same guest is in the conference as before. */
export interface Kept {
  guest: string;
  name: string;
  microphone: boolean;
  camera: boolean;
  inside: boolean;
}

/** Why a participant is not in the conference: a key of the texts. */
export type Why =
  | '' | 'left' | 'ended' | 'removed' | 'elsewhere' | 'lost' | 'full' | 'link_used' | 'link_revoked' | 'unauthenticated' | 'not_found' | 'direct' | 'unreachable' | 'unavailable' | 'other';

/** Retries for as long as the conference continues: the server ends them with 401. The first is immediate, because it is demanded once there is another unit. */
const reconnectPolicy = {
  nextRetryDelayInMs: ({ retryCount }: { retryCount: number }) => (retryCount === 0 ? 1 : Math.min(5000, 250 * 2 ** retryCount) * (0.75 + Math.random() / 2)),
};

setLogLevel('warn');

const tickEvery = 50;
/**
 * How often the participants are read again. livekit-client 2.23.0 reports that it is connected as soon as media flows, but its attempt to
 * reconnect lasts at least 2 s (RTCEngine.waitForPCReconnected). In between, it keeps events such as TrackSubscribed until the next reconnection.
 */
const readEvery = 1000;
/** How long participants are shown who have not returned after a move. */
const returnWithin = 5000;

export class Meeting {
  phase = $state<'lobby' | 'joining' | 'in' | 'out'>('lobby');
  why = $state<Why>('');
  /** The server's own message, if there is no better one. */
  detail = $state('');
  /** Why the server refused the name; the lobby asks for another one. */
  refusal = $state.raw<Problem | null>(null);
  admission = $state.raw<RedeemOutputBody | null>(null);
  participants = $state.raw<Person[]>([]);
  moves = $state.raw<Move[]>([]);
  /** The id of the unit, for hosts. */
  unit = $state('');
  connected = $state(false);
  canPublish = $state(true);
  microphone = $state(false);
  camera = $state(false);
  /** The browser plays no sound before a press. */
  muffled = $state(false);
  /** What the user chose, which a reload keeps. */
  chosen = $state.raw({ microphone: false, camera: false });
  /** The microphone was muted, not by the user. */
  overruled = $state(false);
  /** The microphone or camera that could not be used. */
  device = $state<'' | 'microphone' | 'camera'>('');
  room: Room | null = null;

  private stop = new AbortController();
  private track: Moves | null = null;
  private choices = { microphone: new Choice(false), camera: new Choice(false) };

  constructor(
    private admit: () => Promise<RedeemOutputBody>,
    /** Of a host: headers for the conference's own events, which name its units. Guests open reduced ones with a ticket. */
    private host: (() => Record<string, string>) | null,
  ) {}

  async join(microphone: boolean, camera: boolean, devices: { audioinput: string; videoinput: string }) {
    this.phase = 'joining';
    this.why = '';
    this.detail = '';
    this.refusal = null;
    this.device = '';
    this.stop = new AbortController();
    this.choices = { microphone: new Choice(microphone), camera: new Choice(camera) };
    this.chosen = { microphone, camera };
    try {
      const admission = await this.admit();
      this.admission = admission;
      if (admission.direct) return this.leave('direct');
      this.track = new Moves('');
      this.moves = [];
      const room = this.open(devices);
      void this.attend(admission, this.stop.signal);
      await room.connect(admission.url, admission.token);
      this.phase = 'in';
      this.connected = true;
      this.refresh();
      if (this.canPublish && microphone) await this.setMicrophone(true);
      if (this.canPublish && camera) await this.setCamera(true);
    } catch (err) {
      if (this.phase === 'joining') await this.refused(err);
    }
  }

  /** Ends the connection; the page shows why. */
  leave(why: Why, detail = '') {
    if (this.phase === 'out') return;
    this.phase = 'out';
    this.why = why;
    this.detail = detail;
    this.connected = false;
    this.stop.abort();
    const room = this.room;
    this.room = null;
    this.participants = [];
    void room?.disconnect();
  }

  async setMicrophone(on: boolean) {
    await this.choose('microphone', on, () => this.room?.localParticipant.setMicrophoneEnabled(on));
  }

  async setCamera(on: boolean) {
    await this.choose('camera', on, () => this.room?.localParticipant.setCameraEnabled(on));
  }

  async use(kind: 'audioinput' | 'videoinput', id: string) {
    await this.publish(kind === 'audioinput' ? 'microphone' : 'camera', () => this.room?.switchActiveDevice(kind, id));
  }

  private async choose(what: 'microphone' | 'camera', on: boolean, change: () => Promise<unknown> | undefined) {
    const choice = this.choices[what];
    choice.press(on, Date.now());
    this.refresh();
    const done = await this.publish(what, change);
    if (!done) choice.on = false;
    choice.settled();
    this.refresh();
  }

  /** Returns false if the device cannot be used. */
  private async publish(what: 'microphone' | 'camera', change: () => Promise<unknown> | undefined): Promise<boolean> {
    if (this.device === what) this.device = '';
    try {
      await change();
    } catch {
      if (this.phase === 'in' && this.connected) { // otherwise the client publishes it when it is connected
        this.device = what;
        return false;
      }
    }
    this.refresh();
    return true;
  }

  private open(devices: { audioinput: string; videoinput: string }): Room {
    const room = new Room({
      adaptiveStream: true, dynacast: true, reconnectPolicy,
      audioCaptureDefaults: { deviceId: devices.audioinput || undefined, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
      videoCaptureDefaults: { deviceId: devices.videoinput || undefined, resolution: { width: 640, height: 360, frameRate: 24 } },
      publishDefaults: { dtx: false }, // continuous packets: interruptions are noticed and measured in silence, too
    });
    this.room = room;
    Object.assign(globalThis, { currentRoom: room }); // for the browser's console, as in LiveKit's own examples
    const now = () => Date.now();
    const refresh = () => this.refresh();
    for (const e of [
      RoomEvent.ParticipantConnected, RoomEvent.ParticipantDisconnected, RoomEvent.TrackSubscribed, RoomEvent.TrackUnsubscribed, RoomEvent.TrackMuted,
      RoomEvent.TrackUnmuted, RoomEvent.TrackPublished, RoomEvent.TrackUnpublished, RoomEvent.LocalTrackPublished, RoomEvent.LocalTrackUnpublished,
      RoomEvent.ActiveSpeakersChanged, RoomEvent.ParticipantNameChanged, RoomEvent.ParticipantAttributesChanged, RoomEvent.ParticipantPermissionsChanged,
    ] as const) room.on(e, refresh);
    room.on(RoomEvent.AudioPlaybackStatusChanged, () => (this.muffled = !room.canPlaybackAudio));
    room.on(RoomEvent.MediaDevicesError, (_, kind) => (this.device = kind === 'videoinput' ? 'camera' : 'microphone'));
    const repair = new Repair(room, (source) => console.warn(`published again: ${source}`));
    this.stop.signal.addEventListener('abort', () => repair.stop(), { once: true });
    room.on(RoomEvent.LocalTrackUnpublished, (pub) => {
      if (room.state === ConnectionState.Connected && pub.track?.mediaStreamTrack.readyState === 'ended') repair.forget(pub.track);
    });
    const interrupted = (restarting: boolean) => () => {
      repair.interrupted();
      this.track?.interrupted(restarting, now());
      for (const c of Object.values(this.choices)) c.interrupted(now());
      this.refresh();
    };
    room.on(RoomEvent.SignalReconnecting, interrupted(false));
    room.on(RoomEvent.Reconnecting, interrupted(true));
    room.on(RoomEvent.Reconnected, () => {
      this.track?.connected(now());
      repair.returned();
      for (const c of Object.values(this.choices)) c.returned(now());
      this.refresh();
    });
    room.on(RoomEvent.ConnectionStateChanged, refresh);
    room.on(RoomEvent.Disconnected, (reason) => {
      if (this.room !== room || this.phase !== 'in') return;
      // The client disconnects when the tab closes, reloads or is frozen. Only a page that returns gets here later.
      if (reason === DisconnectReason.CLIENT_INITIATED) setTimeout(() => this.leave('left'), 1000);
      else void this.disconnected(reason);
    });
    let read = 0;
    const timer = setInterval(() => {
      if (!this.track || this.phase !== 'in') return;
      const { newest, sending } = received(room);
      const before = this.track.open;
      this.track.tick(newest, sending, now());
      if (before === this.track.open && now() - read < readEvery && !this.participants.some((p) => p.away)) return;
      read = now();
      this.refresh();
    }, tickEvery);
    this.stop.signal.addEventListener('abort', () => clearInterval(timer), { once: true });
    return room;
  }

  /** Follows the conference's events until it has ended. */
  private async attend(admission: RedeemOutputBody, signal: AbortSignal) {
    const { host } = this;
    let over = false;
    let last = '';
    let address = admission.eventsUrl;
    let current = false; // earlier moves are not this participant's
    const follower = follow({
      url: async () => {
        if (host) return `/v1/conferences/${admission.e164}/events`;
        const next = address || (await this.admit()).eventsUrl; // a ticket opens the events once
        address = '';
        return next;
      },
      headers: () => host?.() ?? {},
      lastId: () => last,
      onFrame: (f) => {
        if (f.id) last = f.id;
        const ev = parse(f.data);
        if (!ev || ev.type === 'gap' || ev.conferenceId !== admission.conferenceId) return; // or an earlier conference of the number
        const owner = 'owner' in ev ? ev.owner : undefined;
        const epoch = owner?.epoch ?? ('epoch' in ev ? ev.epoch : undefined) ?? 0;
        if (ev.type === 'done') over = true;
        else if (current) this.track?.conference(ev.status ?? '', owner?.nodeId ?? (epoch ? String(epoch) : ''), Date.now());
        else if (epoch >= admission.epoch) {
          current = true;
          if (this.track && epoch) this.track.unit = owner?.nodeId ?? String(epoch);
        }
        this.show();
      },
      ended: () => over,
      poll: async () => 5000,
      signal,
      always: true, // a conference continues in a hidden tab, whose moves are shown with their times
    });
    await follower.catch(() => {}); // the connection itself shows why
    if (over && !signal.aborted) this.leave('ended');
  }

  private async refused(err: unknown) {
    if (err instanceof ConnectionError) {
      if (err.reason === ConnectionErrorReason.LeaveRequest) return this.leave(reasons[err.context as DisconnectReason] ?? 'lost');
      const why = await this.ask();
      return this.leave(why === 'lost' ? 'unavailable' : why);
    }
    if (err instanceof Problem && err.field === 'name') {
      this.refusal = err;
      this.phase = 'lobby';
      return;
    }
    const { why, detail } = whyOf(err);
    this.leave(why, detail);
  }

  private async disconnected(reason?: DisconnectReason) {
    this.connected = false;
    this.leave((reason !== undefined && reasons[reason]) || (await this.ask()));
  }

  /** Asks the server why the connection was refused. */
  private async ask(): Promise<Why> {
    try {
      await this.admit();
      return 'lost';
    } catch (err) {
      return whyOf(err).why;
    }
  }

  private show() {
    if (!this.track) return;
    this.moves = this.track.all.map((m) => ({ ...m }));
    this.unit = this.host ? this.track.unit : '';
    this.connected = this.phase === 'in' && this.track.open === null;
  }

  private refresh() {
    const room = this.room;
    if (!room) return;
    const own = room.localParticipant;
    this.canPublish = own.permissions?.canPublish ?? true;
    this.show();
    const last = this.moves.at(-1);
    const moving = !this.connected || room.state !== ConnectionState.Connected || (last !== undefined && Date.now() - last.at - last.took < returnWithin);
    this.microphone = this.follow('microphone', own.getTrackPublication(Track.Source.Microphone), !moving);
    this.camera = this.follow('camera', own.getTrackPublication(Track.Source.Camera), !moving);
    const { microphone, camera } = this.choices;
    this.overruled = microphone.overruled && this.canPublish;
    if (this.chosen.microphone !== microphone.on || this.chosen.camera !== camera.on) this.chosen = { microphone: microphone.on, camera: camera.on };
    const present = [own, ...room.remoteParticipants.values()].filter((p) => p.identity).map(presentOf);
    if (own.identity) present[0].audible = this.microphone;
    const next = shown(present, this.participants, moving);
    if (!same(next, this.participants)) this.participants = next;
  }

  /** Notes the state of the own track, and returns whether it is shown as on. */
  private follow(what: 'microphone' | 'camera', pub: TrackPublication | undefined, steady: boolean): boolean {
    const muted = pub ? pub.isMuted : null;
    if (this.choices[what].see(muted, Date.now())) void (what === 'camera' ? this.setCamera(true) : this.setMicrophone(true));
    return this.choices[what].shown(muted, steady);
  }
}

function presentOf(p: LocalParticipant | RemoteParticipant | Participant): Present {
  const camera = p.getTrackPublication(Track.Source.Camera);
  const microphone = p.getTrackPublication(Track.Source.Microphone);
  return {
    identity: p.identity, name: p.name || p.identity, own: p.isLocal, host: p.attributes['berth.role'] === 'host', guest: p.identity.startsWith('guest-'),
    speaking: p.isSpeaking, audible: microphone ? !microphone.isMuted : null, camera: camera && !camera.isMuted ? (camera.track ?? null) : null,
    audio: p.isLocal ? null : (microphone?.track ?? null),
  };
}

/** Returns the time of the newest packet of the other participants, and whether any of them sends. */
function received(room: Room): { newest: number; sending: boolean } {
  let newest = 0;
  let sending = false;
  for (const p of room.remoteParticipants.values()) {
    for (const pub of p.trackPublications.values()) {
      if (!pub.track || pub.isMuted) continue;
      sending = true;
      const sources = (pub.track as { receiver?: RTCRtpReceiver }).receiver?.getSynchronizationSources?.() ?? [];
      for (const s of sources) newest = Math.max(newest, s.timestamp);
    }
  }
  return { newest, sending };
}

const reasons: Partial<Record<DisconnectReason, Why>> = {
  [DisconnectReason.CLIENT_INITIATED]: 'left', [DisconnectReason.DUPLICATE_IDENTITY]: 'elsewhere', [DisconnectReason.PARTICIPANT_REMOVED]: 'removed',
  [DisconnectReason.ROOM_DELETED]: 'ended', [DisconnectReason.ROOM_CLOSED]: 'ended', [DisconnectReason.JOIN_FAILURE]: 'full',
};

/** Reasons that last: to join later is refused, too. */
export const lasting: Why[] = ['ended', 'removed', 'link_used', 'link_revoked', 'unauthenticated', 'not_found'];
const known: Why[] = [...lasting, 'unavailable'];

/** Returns why a request was refused, and the server's own words where they say more. */
export function whyOf(err: unknown): { why: Why; detail: string } {
  if (!(err instanceof Problem)) return { why: 'lost', detail: '' };
  if (err.status === 0) return { why: 'unreachable', detail: '' };
  if (err.code === 'conflict') return { why: 'removed', detail: '' }; // a user, not a guest
  const why = err.code === 'proxy' ? 'unavailable' : (known.find((k) => k === err.code) ?? 'other');
  return { why, detail: why === 'unavailable' || why === 'other' ? err.message : '' };
}

/** The event of a conference, as its user or a participant gets it. */
type ConferenceChange = ConferenceEvent | ParticipationEvent;

function parse(data: string): ConferenceChange | null {
  try {
    return JSON.parse(data) as ConferenceChange;
  } catch {
    return null;
  }
}
