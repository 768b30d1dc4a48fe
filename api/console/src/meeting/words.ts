// The texts of a conference's page in both languages. zh has the type of en, so a missing text is a compile error.

const en = {
  invited: 'You are invited to a conference.', lobbyLead: 'Choose how you take part. The others see your name once you join.', hostLead: 'You join as a host: you can invite others and remove participants.',
  name: 'Your name', nameNeeded: 'Enter your name.', microphone: 'Microphone', camera: 'Camera', on: 'on', off: 'off', join: 'Join', joining: 'Joining…', joinAgain: 'Join again', preview: 'Your camera',
  devices: 'Choose devices', standard: 'Standard device', noAccess: 'The browser gives this page no access to microphones and cameras. Open it with HTTPS, or on this computer.',
  no_microphone: 'The microphone cannot be used. Allow it in the browser, or choose another one.', no_camera: 'The camera cannot be used. Allow it in the browser, or choose another one.',
  conference: 'Conference', you: 'you', host: 'host', muted: 'muted', speaking: 'speaking', away: 'reconnecting', present: 'present', alone: 'No one else is here yet.',
  connected: 'Connected', connecting: 'Connecting…', interrupted: 'Reconnecting…', on_unit: 'on', mute: 'Mute', unmute: 'Unmute', cameraOn: 'Camera on', cameraOff: 'Camera off', leave: 'Leave', controls: 'Controls',
  overruled: 'You were muted. Press Unmute to speak.', until: 'until',
  listening: 'You listen only.', play: 'Play the sound', muffled: 'The browser plays no sound until you allow it.', participants: 'Participants',

  moves: 'Moves', noMoves: 'If the media server fails, the conference continues on another one. You will see it here.',
  failed: 'The media server failed', moved: 'The conference moves to another media server', wasMoved: 'Moved to another media server', connection: 'The connection was lost', reconnecting: 'reconnecting…', back: 'back after', backNow: 'back without an interruption', backOn: 'on', another: 'another one',

  left: 'You left the conference.', leftText: 'It continues without you.', ended: 'The conference has ended.', endedText: 'Thank you for taking part.',
  removed: 'A host removed you from this conference.', removedText: 'To join again, ask a host.', elsewhere: 'You joined in another tab or on another device.', elsewhereText: 'This one is disconnected.',
  lost: 'The connection was lost.', lostText: 'Check your network, then join again.', full: 'The conference is full.', fullText: 'Its maximum number of participants is present. Join when one has left.',
  link_used: 'This link was already used.', link_usedText: 'It has admitted as many guests as it may. Ask the host for another link.',
  link_revoked: 'This link was revoked.', link_revokedText: 'Ask the host for another link.', unauthenticated: 'This link is not valid.', unauthenticatedText: 'It is incomplete or has expired. Ask the host for another link.',
  signIn: 'Sign in to take part as the host.', signInText: 'This address is for the hosts of the conference. Guests join with an invitation link.',
  not_found: 'Conference not found.', not_foundText: 'It does not exist, or belongs to another user.', direct: 'This conference cannot be joined in the browser.', directText: 'The server is configured to connect participants to the media servers directly.',
  unreachable: 'The server cannot be reached.', unreachableText: 'Check your network, then join again.', unavailable: 'The conference cannot be joined now.', unavailableText: 'Join again in a moment.', other: 'The conference cannot be joined.', otherText: '',
};

export type MeetingWords = typeof en;

const zh: MeetingWords = {
  invited: '邀请您参加会议。', lobbyLead: '请选择参会方式。加入后其他人会看到您的姓名。', hostLead: '您将以主持人身份加入，可以邀请或移除参会者。',
  name: '您的姓名', nameNeeded: '请输入您的姓名。', microphone: '麦克风', camera: '摄像头', on: '开', off: '关', join: '加入', joining: '正在加入…', joinAgain: '重新加入', preview: '您的摄像头',
  devices: '选择设备', standard: '默认设备', noAccess: '浏览器不允许此页面使用麦克风和摄像头。请使用 HTTPS 或在本机打开。',
  no_microphone: '无法使用麦克风。请在浏览器中允许，或选择其他设备。', no_camera: '无法使用摄像头。请在浏览器中允许，或选择其他设备。',
  conference: '会议', you: '您', host: '主持人', muted: '已静音', speaking: '正在发言', away: '正在重新连接', present: '人在场', alone: '还没有其他人。',
  connected: '已连接', connecting: '正在连接…', interrupted: '正在重新连接…', on_unit: '位于', mute: '静音', unmute: '取消静音', cameraOn: '打开摄像头', cameraOff: '关闭摄像头', leave: '离开', controls: '控制',
  overruled: '您已被静音。如需发言，请按“取消静音”。', until: '结束时间',
  listening: '您仅收听。', play: '播放声音', muffled: '浏览器需要您允许才能播放声音。', participants: '参会者',

  moves: '迁移', noMoves: '媒体服务器发生故障时，会议会在另一台服务器上继续，届时会显示在这里。',
  failed: '媒体服务器发生故障', moved: '会议正在迁移到另一台媒体服务器', wasMoved: '已迁移到另一台媒体服务器', connection: '连接中断', reconnecting: '正在重新连接…', back: '恢复用时', backNow: '已恢复，没有中断', backOn: '位于', another: '另一台服务器',

  left: '您已离开会议。', leftText: '会议仍在继续。', ended: '会议已结束。', endedText: '感谢您的参与。',
  removed: '主持人已将您移出会议。', removedText: '如需再次加入，请联系主持人。', elsewhere: '您已在其他标签页或设备上加入。', elsewhereText: '此处已断开连接。',
  lost: '连接已断开。', lostText: '请检查网络后重新加入。', full: '会议人数已满。', fullText: '已达到人数上限，请在有人离开后加入。',
  link_used: '此链接已被使用。', link_usedText: '可加入的来宾人数已满，请向主持人索取新的链接。',
  link_revoked: '此链接已被撤销。', link_revokedText: '请向主持人索取新的链接。', unauthenticated: '此链接无效。', unauthenticatedText: '链接不完整或已过期，请向主持人索取新的链接。',
  signIn: '请登录后以主持人身份参会。', signInText: '此地址供会议主持人使用，来宾请使用邀请链接加入。',
  not_found: '未找到会议。', not_foundText: '会议不存在，或属于其他用户。', direct: '无法在浏览器中加入此会议。', directText: '服务器设置为让参会者直接连接媒体服务器。',
  unreachable: '无法连接服务器。', unreachableText: '请检查网络后重新加入。', unavailable: '目前无法加入会议。', unavailableText: '请稍后重新加入。', other: '无法加入会议。', otherText: '',
};

export const meetingWords = { en, zh };
