// The texts of the console in both languages. zh has the type of en, so a missing text is a compile error.

const en = {
  console: 'Console', overview: 'Overview', fleet: 'Fleet', pools: 'Pools', models: 'Models', tasks: 'Tasks', turns: 'Turns',
  executions: 'Executions', conferences: 'Conferences', accounts: 'Accounts', reconciliation: 'Reconciliation', usage: 'Usage', audit: 'Audit',
  parts: 'Parts of this view', pages: 'pages', page: 'Page', previous: 'Previous', next: 'Next', allWord: 'All', none: 'None.', notFound: 'Not found.',
  lastKnown: 'This is the last known state.', live: 'Live', notLive: 'Reconnecting…', crowded: 'Every few seconds: other windows use all live connections', keep: 'Keep as it is', cancel: 'Cancel', save: 'Save', yes: 'yes', no: 'no', now: 'now', until: 'until',

  tasksWaiting: 'Tasks waiting', tasksRunning: 'Tasks running', lostHour: 'Tasks lost in the last hour', executionsOpen: 'Executions', waitingWord: 'waiting', waitingLabel: 'Waiting', turnsOpen: 'Open turns',
  conferencesOpen: 'Conferences', nodesReady: 'Nodes ready', slotsUsed: 'Slots in use', staleFleet: 'Redis is unavailable: the fleet is shown as last known.',
  attention: 'Needs attention', calm: 'Nothing needs attention.', findingsLeft: 'Differences left by the last reconciliation', nodesSuspect: 'Nodes that miss heartbeats',
  nodesDead: 'Nodes that are gone', failedHour: 'Tasks that failed in the last hour', perMinute: 'Tasks by minute', troublePerMinute: 'Failures by minute', accepted: 'accepted', completed: 'completed',
  failedWord: 'failed', cancelledWord: 'cancelled', recentChanges: 'Recent changes', noChanges: 'No changes yet.', largest: 'at most per minute',

  fleetLead: 'Every registered node, and those that died within the last hour.', node: 'Node', kind: 'Kind', stateWord: 'State', excludedBecause: 'Excluded because', leases: 'Slots', load: 'Load',
  memory: 'Memory', heartbeat: 'Heartbeat', noNodes: 'No node matches.', cordon: 'Cordon', uncordon: 'Uncordon', drain: 'Drain', undrain: 'Cancel drain',
  cordonText: 'The node gets no new work. What it runs continues. You can undo this at any time.', uncordonText: 'The node gets new work again. A drain is cancelled, too.',
  drainText: 'The node gets no new work, and its conferences move to other units when the time is over. Jobs finish. You can cancel the drain before.',
  undrainText: 'The node keeps what it runs, and gets new work unless it is cordoned.', drainWithin: 'Minutes until what is left is moved',
  noNewWork: 'This node gets no new work:', jobs: 'Jobs', latency: 'Latency', zone: 'Zone', host: 'Host', registered: 'Registered', generation: 'Generation', services: 'Services', unknown: 'unknown', unavailable: 'Unavailable services',

  poolsLead: 'Groups of nodes by capability, how a node is chosen in each, and why.', pool: 'Pool', strategy: 'Strategy', why: 'Why', members: 'Nodes', free: 'Free nodes', excludedNodes: 'Excluded nodes',
  implicit: 'by capability', showMembers: 'Show its nodes', missingCapabilities: 'No registered node has:', capabilities: 'Capabilities', tenants: 'Tenants', everyTenant: 'every tenant',
  noneExcluded: 'Every node can be chosen.', switches: 'Switches of the strategy', noSwitches: 'It was not switched yet.', notDynamic: 'The strategy of this pool is fixed.', time: 'Time', from: 'From', to: 'To',
  whySwitched: 'switched at load', whySet: 'set for this pool', whyDefault: 'set for the fleet', whyStart: 'load and latency are low', whySize: 'by the size of the pool', whySizeLong: 'It follows the size of the pool and is not switched by load.',

  modelsLead: 'Slots, queues and the users who wait. Limits that you set apply to the next call.', model: 'Model', inUse: 'In use', rpm: 'Calls per minute', tpm: 'Tokens per minute', cap: 'Concurrent calls', noLimit: 'no limit',
  nextCall: 'Next call may start', eta: 'Estimated wait', noWait: 'none', queues: 'Queues', queue: 'Queue', weight: 'Weight', waitingUsers: 'Waiting users', upstreams: 'Upstreams', rank: 'rank', learned: 'learned', ofProvider: 'calls of the provider', causeWord: 'Cause', editLimits: 'Edit limits', pause: 'Pause', resume: 'Resume',
  pausedByOperator: 'Paused by an operator', pausedByProvider: 'Paused because its provider fails or asked for it', probed: 'Its provider failed and is probed: one call at a time, until one succeeds', limitsText: 'The next call of any process follows these limits. Running calls continue. The configured value removes your limit.',
  configured: 'configured:', pauseText: 'No call of this model starts until it is resumed. Running calls continue, and tasks wait.', resumeText: 'Waiting calls start again. This also ends a pause that the provider caused.', reason: 'Reason',

  teams: 'Teams', team: 'Team', serviceWord: 'Service', applications: 'Applications', application: 'Application', users: 'Users', upstream: 'Upstream', routing: 'Routing', sums: 'Sums', calls: 'Model calls', level: 'Level', day: 'Day',
  teamsLead: 'Teams and applications share each model by weight. Their limits are those of all models together.', nameBegins: 'Name begins with', newTeam: 'New team', newApp: 'New application', editLevel: 'Edit', maxTasks: 'Unfinished tasks', levelExists: 'This name exists already. Open it to change it.',
  noTeams: 'No teams yet. Without teams all users share the models equally.', noApps: 'No applications yet. An application is a program whose users share one part of its team\'s slots.', levelText: 'New calls and tasks follow these settings immediately. Running calls continue.', weightNote: 'relative to others that wait', emptyNoLimit: 'empty: no limit', oneALine: 'one a line', teamNote: 'has to exist; empty for none',
  atLimitText: 'Its calls wait because it uses all of its slots. Raise its limit, or wait until calls end.', usesNow: 'In use by model and queue', usesNothing: 'No call runs or waits.', noUsers: 'None: tokens name the team of their users.', noServices: 'None.', deleteTeamText: 'The team and its lists of members are deleted. Accepted tasks run with weight 1 and without limits. Delete or move its applications first.', deleteAppText: 'The application is deleted. Accepted tasks run with weight 1 and without limits.',
  apiKey: 'API key', apiKeys: 'API keys', keysLead: 'Programs call models by OpenAI\'s protocol with a key of their team or application.', newKey: 'New API key', noKeys: 'No API keys yet. Programs need one to call models by OpenAI\'s protocol.', openKey: 'Open the key', hint: 'Secret ends with', maxCalls: 'Unfinished calls', serviceTiers: 'Service tiers', endUsers: 'End users', endUsersText: 'The users that requests name share the slots', expires: 'Expires', never: 'never', emptyNever: 'empty: never', createdAt: 'Created', durability: 'Chats are made', retention: 'Texts are kept', replaceResponses: 'Responses that break off are made again', replaceResponsesText: 'Stored responses that break off are made again as new ones', retentionNote: 'all, errors, metadata, or a time such as 24h; empty: all', allModels: 'All models of the routing.', withRevoked: 'also revoked', notRevoked: 'not revoked',
  newKeyText: 'The secret is shown after this, and only then. Copy it to the program that uses it.', secretText: 'Copy the secret now: it is shown only this time. berth stores no more than a hash, so a lost secret has to be replaced by a new key.', secretOf: 'Secret of the new key', editKeyText: 'Calls follow these settings within a second. Running calls continue.', teamOfKey: 'empty: that of the application', appOfKey: 'empty: the key is an application of its own', modelsNote: 'one a line; empty: all', revokeKeyText: 'Calls with this key are refused within a second. Running calls continue. This cannot be undone.',
  budget: 'Budget', budgets: 'Budgets', budgetsLead: 'What the calls of an API key or a team may cost in a period. Calls that would cost more are refused.', budgetOf: 'Budget of', usedCredits: 'Credits used', noBudget: 'No budget: the costs of the calls are not limited.', noOwnBudget: 'Neither the key nor its team has a budget: the costs of the calls are not limited.', teamBudget: 'The key has no budget of its own. That of its team applies.', noBudgets: 'No budgets yet. Open an API key or a team to set one.', setBudget: 'Set a budget', changeBudget: 'Change the budget', removeBudget: 'Remove the budget', budgetText: 'Other credits keep what the period has used; another period begins with 0. Running calls continue.', removeBudgetText: 'The costs of the calls are no longer limited by it.',
  routingLead: 'The routing file that all processes use: providers, models with their upstreams, queues and routes. A change is used within a second.', revision: 'Revision', revisions: 'Revisions', toNewest: 'To the one in use', useIt: 'Use it', useText: 'All processes use the content within a second. Accepted tasks keep their models. A process whose own file changes publishes that again.', activateRoutingText: 'Its content becomes the newest revision, which all processes use within a second.', routingValid: 'The content is valid.', routingKnown: 'The content is valid, and equals revision', routingUsed: 'All processes use it within a second.', routingSame: 'It means the same as the newest revision: nothing has changed.',
  sumsLead: 'Calls of models that have ended, with their tokens and costs.', sumBy: 'Sum by', period: 'Period', days: 'days', failedLabel: 'Failed', cachedTokens: 'Cached', sumsMore: 'Only the 1,000 highest costs are listed. Use a shorter period or a filter.', noUsage: 'No calls have ended in this period.',
  whoWaits: 'What runs and waits, and why', whyWaits: 'Why it waits', runningLabel: 'Running', levelLimit: 'Limit', others: 'others', noEndUser: 'none named', starting: 'On their way', nothingWaits: 'No call waits.', noLevels: 'No call runs or waits here.', levelsText: 'Each level lists those with the most waiting calls. Limits are those of all models together. The routing file sets the weights of queues.', upstreamsText: 'Calls use the lowest rank with a free slot. To change ranks and providers:', failedDay: 'Failed within 24 hours:', noFailures: 'none', pauseUpstreamText: 'No call of this upstream starts until it is resumed. Running calls continue, and other upstreams of the model take the calls.',

  tasksLead: 'The tasks of all users, newest first.', task: 'Task', user: 'User', template: 'Template', tokens: 'Tokens', started: 'Started', acceptedAt: 'Accepted', took: 'Duration',
  turnsLead: 'Live translation: the utterances of each session, and where their segments ran.', turnsTab: 'Turns', sessionsTab: 'Sessions', turn: 'Turn', session: 'Session', tenant: 'Tenant', languages: 'Languages',
  changed: 'Changed', affinity: 'Affinity', timeline: 'Timeline', segments: 'Segments', segment: 'Segment', dispatches: 'Dispatches', dispatch: 'dispatch', result: 'Result',
  webhook: 'Webhook', webhooks: 'Webhooks', webhooksLead: 'URLs to which berth sends an event when work has ended.', newWebhook: 'New webhook', noWebhooks: 'No webhooks yet. Without them, programs read the state of their work.', openWebhook: 'Open the webhook', about: 'About', allWork: 'all work', eventTypes: 'Events', eventTypesNote: 'such as response.completed, one per line; empty: all', allEvents: 'All events.', ownerNote: 'instead of a team', allWorkText: 'The work of all teams and users', newWebhookText: 'The secret, with which the receiver verifies events, is shown after this, and only then.', editWebhookText: 'Events that are not delivered yet are sent to the new URL, too.', webhookSecretText: 'Copy the secret to the receiver now: it is shown only this time.', disabledText: 'Send no events', sendTest: 'Send a test', newSecret: 'New secret', newSecretText: 'For a day, events have the signatures of the new and of the former secret: change the receiver in this time.', formerSecret: 'Former secret', deleteWebhook: 'Delete', deleteWebhookText: 'Events that are not delivered yet are not sent, and the list of those sent is deleted.', deliveries: 'Sent events', noDeliveries: 'No event yet. Send a test to try the receiver.', event: 'Event', resend: 'Send again', resendText: 'The receiver gets the event with the same id, and may ignore it if it has processed it before.',
  executionsLead: 'Durable runs of named executors, newest first.', execution: 'Execution', ahead: 'Ahead in the queue', attempts: 'Attempts',
  conferencesLead: 'The conferences of all users: which unit runs each, and how it was recovered.', conference: 'Conference', number: 'Number', unit: 'Unit', endsAt: 'End', titleWord: 'Title', epoch: 'Epoch', recoverable: 'Recoverable',
  waitsBecause: 'It waits:', recoveries: 'Recoveries and moves', legend: 'Bars: a unit that runs the conference, one that released it, one that was lost at its end. Marks: commands.', noRecoveries: 'Its unit has not changed.', recoveredIn: 'recovered in', notYetRecovered: 'not recovered yet', openOn: 'open on', commands: 'Commands', command: 'Command', noReplyYet: 'no reply yet',
  newConference: 'New conference', newConferenceText: 'It gets a number, and a media unit runs it until it ends. You invite others by link.', create: 'Create', minutesLong: 'Minutes until it ends', takePart: 'Take part', endIt: 'End', endText: 'All participants are disconnected. This cannot be undone.',
  participantsWord: 'Participants', noParticipants: 'No one was admitted yet.', role: 'Role', came: 'Admitted', byLink: 'by link', present: 'Present', removeIt: 'Remove', removeText: 'The participant is disconnected and cannot join this conference again.', removeGuestText: 'The guest is disconnected, and can join again by this link as a new guest while it admits guests.', removeLinkText: 'The guest is disconnected, and no one can join by this link again.', revokeToo: 'Also revoke the link that this guest came with', removedBy: 'removed by',
  links: 'Invitation links', linksLead: 'Everyone who has a link can join, as often as it allows. It is shown only once.', noLinks: 'There is no link yet.', newLink: 'New link', guests: 'Guests', revoke: 'Revoke', revokeText: 'It admits no more guests. Those that it admitted stay.', revoked: 'revoked', usedUp: 'used up', uses: 'Used', copyLink: 'Copy', copied: 'Copied', linkAddress: 'Address of the new link',

  templates: 'Templates', templatesLead: 'What tasks can be asked for. Tasks that were accepted keep the version that they began with.', findTemplates: 'Title, description or name', mode: 'Mode', version: 'Version', versions: 'Versions', source: 'Source', changedBy: 'By', variables: 'Variables', variable: 'Variable', needed: 'Needed', oneOf: 'one of', runsIf: 'Runs if given', always: 'always', jsonBySchema: 'JSON by schema', stages: 'Stages', items: 'Items',
  created: 'Stored', trialRun: 'Trial run', anyLanguage: 'any', language: 'Language', found: 'found', files: 'Files', deleteIt: 'Delete', activate: 'Activate', discard: 'Discard', check: 'Check', store: 'Store and activate', editFiles: 'Edit', storeOnly: 'Store', tryOut: 'Try out', unstored: 'The changes under Edit are not stored yet. This is the stored version.', notActive: 'Not active', showMessages: 'Show messages', messages: 'Messages',mistakes: 'to correct:', checkedNew: 'No mistakes. This would be a new version.', checkedKnown: 'No mistakes. This version is stored already.',
  tryLead: 'The messages are exactly those that the models of this version would get. No model is asked for them.', trialLead: 'A trial run is a task of your own with this version, active or not.', noVariables: 'This template has no variables.', outputs: 'Outputs of earlier steps', outputsLead: 'For the messages of later steps. A trial run uses what the models answer.', versionUnreadable: 'This release of berth cannot read the version.',
  offered: 'Offered', deletedOnes: 'Deleted', deletedAt: 'Deleted', filesRemoved: 'its files were removed', restore: 'Restore', restoreText: 'New tasks use this version within a second.', replacesWord: 'replaces',
  noModel: 'No model:', noModelText: 'Tasks of templates marked “No model” are refused in these tiers, because the routing file has no model for one of their steps. Open the template to see which, then add the model to the routing file (BERTH_ROUTING_FILE) or name another one in the template.',
  templateDeleted: 'New tasks of this template are refused. Restore it, or activate another version, to offer it again.', templateUnreadable: 'The active version was stored by another release of berth, which reads templates in another way. Store it again, or activate another version.', deleteText: 'New tasks of this template are refused. Accepted tasks keep their version, and a version can be activated again.', activateText: 'New tasks use this version within a second. Accepted tasks keep theirs.',

  accountsLead: 'Credits and every change of them.', userPrefix: 'User begins with', tier: 'Tier', credits: 'Credits', cost: 'Cost', action: 'Action', subject: 'Subject', details: 'Details', omitted: 'Not recorded', paused: 'Paused', name: 'Name', step: 'Step', steps: 'Steps', price: 'Price', code: 'Code', message: 'Message', refunded: 'Refunded', poolId: 'Pool', userId: 'User', withinMs: 'Within ms', ttlMs: 'For ms', entries: 'Entries', amount: 'Amount',
  noEntries: 'This user has no entries: credits were neither added nor used.', addCredits: 'Add credits', addCreditsText: 'A negative amount removes credits. The reason is shown to the user.',

  reconciliationLead: 'Compares what the database, Temporal, Redis and the fleet have, and repairs what was lost outside of berth.', startPass: 'Start a full pass', startPassText: 'The pass compares everything that is open. It runs beside the scheduled passes.', onlyReport: 'Only report, repair nothing',
  lastPass: 'Last pass', foundWord: 'found', leftWord: 'left', foundLabel: 'Found', leftLabel: 'Left', findings: 'Findings', noFindings: 'The last passes found nothing.', passes: 'Passes', rule: 'Rule', rules: 'Rules', dryRun: 'report only', requested: 'requested', fullOnly: 'full passes',

  unpolled: 'No worker polls', noKey: 'No worker has the API key: its slots are not counted', backlog: 'Work waits although workers poll', oldest: 'oldest', atRisk: 'works with a risk', unavailableWord: 'unavailable', temporalUnread: 'Temporal cannot be read: new work is refused.', runbook: 'Runbook:', latePass: 'No pass of the reconciliation has completed', since: 'since', sinceStart: 'since this server started', late: 'late', nodesLost: 'Nodes lost in the last hour', lostAt: 'Last lost', lastReport: 'last report', allBusy: 'when a call ends', notNew: 'No change of it among the last ones.', moved: 'moved',
  ago: 'ago', justNow: 'just now',
};

export type ConsoleWords = typeof en;

const zh: ConsoleWords = {
  console: '控制台', overview: '总览', fleet: '节点', pools: '资源池', models: '模型', tasks: '任务', turns: '翻译轮次',
  executions: '执行', conferences: '会议', accounts: '账户', reconciliation: '对账', usage: '用量', audit: '审计',
  parts: '本页内容', pages: '分页', page: '第', previous: '上一页', next: '下一页', allWord: '全部', none: '没有内容。', notFound: '未找到。',
  lastKnown: '显示的是最后一次读取的状态。', live: '实时', notLive: '正在重新连接…', crowded: '每隔几秒更新：其他窗口占用了全部实时连接', keep: '保持不变', cancel: '取消', save: '保存', yes: '是', no: '否', now: '现在', until: '至',

  tasksWaiting: '等待中的任务', tasksRunning: '运行中的任务', lostHour: '最近一小时丢失的任务', executionsOpen: '执行', waitingWord: '等待', waitingLabel: '等待', turnsOpen: '进行中的轮次',
  conferencesOpen: '会议', nodesReady: '就绪节点', slotsUsed: '已用槽位', staleFleet: 'Redis 不可用，显示的是节点最后已知的状态。',
  attention: '需要关注', calm: '没有需要关注的事项。', findingsLeft: '上次对账后剩余的差异', nodesSuspect: '缺失心跳的节点',
  nodesDead: '已离开的节点', failedHour: '最近一小时失败的任务', perMinute: '任务（按分钟）', troublePerMinute: '失败（按分钟）', accepted: '受理', completed: '完成',
  failedWord: '失败', cancelledWord: '取消', recentChanges: '最近的变化', noChanges: '还没有变化。', largest: '每分钟最多',

  fleetLead: '所有已注册的节点，以及最近一小时内失效的节点。', node: '节点', kind: '类型', stateWord: '状态', excludedBecause: '排除原因', leases: '槽位', load: '负载',
  memory: '内存', heartbeat: '心跳', noNodes: '没有符合条件的节点。', cordon: '停止分配', uncordon: '恢复分配', drain: '排空', undrain: '取消排空',
  cordonText: '节点不再接受新的工作，正在运行的继续。可以随时撤销。', uncordonText: '节点重新接受新的工作，排空也会取消。',
  drainText: '节点不再接受新的工作；到期后，其会议移到其他单元，作业会执行完毕。到期前可以取消。',
  undrainText: '节点保留正在运行的工作；若未停止分配，将重新接受新的工作。', drainWithin: '移走剩余工作前的分钟数',
  noNewWork: '该节点不接受新的工作：', jobs: '作业', latency: '延迟', zone: '区域', host: '主机', registered: '注册时间', generation: '代', services: '服务', unknown: '未知', unavailable: '不可用的服务',

  poolsLead: '按能力划分的节点组，各组选择节点的方式及其原因。', pool: '资源池', strategy: '策略', why: '原因', members: '节点', free: '空闲节点', excludedNodes: '被排除的节点',
  implicit: '按能力', showMembers: '查看其节点', missingCapabilities: '没有已注册的节点具备：', capabilities: '能力', tenants: '租户', everyTenant: '所有租户',
  noneExcluded: '所有节点均可选择。', switches: '策略切换', noSwitches: '尚未切换。', notDynamic: '该资源池的策略是固定的。', time: '时间', from: '从', to: '到',
  whySwitched: '切换时负载为', whySet: '为该资源池设置', whyDefault: '全局设置', whyStart: '负载与延迟较低', whySize: '按资源池大小', whySizeLong: '策略随资源池大小而定，不按负载切换。',

  modelsLead: '槽位、队列与等待的用户。您设置的限制从下一次调用起生效。', model: '模型', inUse: '使用中', rpm: '每分钟调用数', tpm: '每分钟 Token 数', cap: '并发调用数', noLimit: '不限',
  nextCall: '下一次调用最早', eta: '预计等待', noWait: '无', queues: '队列', queue: '队列', weight: '权重', waitingUsers: '等待的用户', upstreams: '上游', rank: '优先级', learned: '自动学习', ofProvider: '该供应商的调用', causeWord: '原因', editLimits: '修改限制', pause: '暂停', resume: '恢复',
  pausedByOperator: '由运维人员暂停', pausedByProvider: '因服务商失败或要求而暂停', probed: '服务商曾失败，正在探测：每次只发起一个调用，直到成功', limitsText: '所有进程的下一次调用按此限制执行，正在进行的调用继续。填入配置值即取消您的限制。',
  configured: '配置值：', pauseText: '恢复之前，不再开始该模型的调用；正在进行的调用继续，任务等待。', resumeText: '等待的调用重新开始，由服务商引起的暂停也会结束。', reason: '原因',

  teams: '团队', team: '团队', serviceWord: '服务', applications: '应用', application: '应用', users: '用户', upstream: '上游', routing: '路由', sums: '汇总', calls: '模型调用', level: '层级', day: '日期',
  teamsLead: '团队与应用按权重分享每个模型；其限制为所有模型合计。', nameBegins: '名称开头', newTeam: '新建团队', newApp: '新建应用', editLevel: '编辑', maxTasks: '未完成任务', levelExists: '该名称已存在。请打开后修改。',
  noTeams: '还没有团队。没有团队时，所有用户平均分享模型。', noApps: '还没有应用。应用是一个程序，其用户共同分享团队槽位中的一份。', levelText: '新的调用与任务立即按此设置执行，正在进行的调用继续。', weightNote: '相对于其他等待者', emptyNoLimit: '留空：不限', oneALine: '每行一个', teamNote: '必须已存在；留空表示无',
  atLimitText: '它已用满自己的槽位，调用因此等待。请提高其限制，或等待调用结束。', usesNow: '按模型与队列的使用情况', usesNothing: '没有正在进行或等待的调用。', noUsers: '没有：由令牌指明其用户所属的团队。', noServices: '没有。', deleteTeamText: '团队及其成员列表将被删除。已受理的任务按权重 1 且不受限制地执行。请先删除或移走其应用。', deleteAppText: '应用将被删除。已受理的任务按权重 1 且不受限制地执行。',
  apiKey: 'API 密钥', apiKeys: 'API 密钥', keysLead: '程序使用其团队或应用的密钥，按 OpenAI 协议调用模型。', newKey: '新建 API 密钥', noKeys: '还没有 API 密钥。程序需要密钥才能按 OpenAI 协议调用模型。', openKey: '打开此密钥', hint: '密钥结尾', maxCalls: '未完成的调用', serviceTiers: '服务级别', endUsers: '最终用户', endUsersText: '请求中指明的用户共同分享槽位', expires: '到期', never: '永不', emptyNever: '留空：永不', createdAt: '创建时间', durability: '对话的执行方式', retention: '文本保留', replaceResponses: '中断的响应重新生成', replaceResponsesText: '已存储的响应中断后，重新生成为新的响应', retentionNote: 'all、errors、metadata，或时长如 24h；留空：all', allModels: '路由配置中的所有模型。', withRevoked: '包括已撤销的', notRevoked: '未撤销的',
  newKeyText: '密钥随后显示，且只显示一次。请将其复制到使用它的程序中。', secretText: '请立即复制密钥：只显示这一次。berth 只保存其哈希值，丢失后只能新建密钥。', secretOf: '新密钥', editKeyText: '调用在一秒内按此设置执行，正在进行的调用继续。', teamOfKey: '留空：应用所属的团队', appOfKey: '留空：密钥自成一个应用', modelsNote: '每行一个；留空：全部', revokeKeyText: '使用此密钥的调用在一秒内被拒绝，正在进行的调用继续。此操作无法撤销。',
  budget: '预算', budgets: '预算', budgetsLead: 'API 密钥或团队的调用在一个周期内最多可以花费的点数。超出预算的调用会被拒绝。', budgetOf: '所属', usedCredits: '已用点数', noBudget: '没有预算：不限制调用的费用。', noOwnBudget: '密钥及其团队都没有预算：不限制调用的费用。', teamBudget: '密钥没有自己的预算，适用其团队的预算。', noBudgets: '还没有预算。请打开 API 密钥或团队进行设置。', setBudget: '设置预算', changeBudget: '修改预算', removeBudget: '移除预算', budgetText: '修改点数时保留本周期已用的部分；更换周期则从 0 开始。正在进行的调用继续。', removeBudgetText: '调用的费用将不再受其限制。',
  routingLead: '所有进程使用的路由配置：服务商、模型及其上游、队列与路由。修改在一秒内生效。', revision: '版本', revisions: '历史版本', toNewest: '返回使用中的版本', useIt: '使用', useText: '所有进程将在一秒内使用此内容。已受理的任务保留其模型。若某个进程自己的文件发生变化，将再次发布该文件。', activateRoutingText: '其内容将成为最新版本，所有进程在一秒内使用。', routingValid: '内容有效。', routingKnown: '内容有效，且与此版本相同：', routingUsed: '所有进程将在一秒内使用。', routingSame: '其含义与最新版本相同：没有变化。',
  sumsLead: '已结束的模型调用及其 Token 数与费用。', sumBy: '汇总依据', period: '时间段', days: '天', failedLabel: '失败', cachedTokens: '缓存', sumsMore: '只列出费用最高的 1,000 项。请缩短时间段或增加筛选条件。', noUsage: '此时间段内没有已结束的调用。',
  whoWaits: '正在进行与等待的调用及其原因', whyWaits: '等待原因', runningLabel: '进行中', levelLimit: '限制', others: '其他', noEndUser: '未指明', starting: '即将开始', nothingWaits: '没有等待的调用。', noLevels: '这里没有正在进行或等待的调用。', levelsText: '每个层级只列出等待调用最多的部分。限制为所有模型合计。队列的权重由路由配置设定。', upstreamsText: '调用优先使用优先级数字最小且有空闲槽位的上游。修改优先级与服务商：', failedDay: '24 小时内失败：', noFailures: '没有', pauseUpstreamText: '恢复之前，不再开始该上游的调用；正在进行的调用继续，调用由模型的其他上游承担。',

  tasksLead: '所有用户的任务，最新的在前。', task: '任务', user: '用户', template: '模板', tokens: 'Token 数', started: '开始', acceptedAt: '受理', took: '用时',
  turnsLead: '实时翻译：各会话的轮次，以及各片段在哪里执行。', turnsTab: '轮次', sessionsTab: '会话', turn: '轮次', session: '会话', tenant: '租户', languages: '语言',
  changed: '更新时间', affinity: '亲和', timeline: '时间线', segments: '片段', segment: '片段', dispatches: '分派', dispatch: '分派', result: '结果',
  webhook: 'Webhook', webhooks: 'Webhook', webhooksLead: '工作结束时，berth 向这些 URL 发送事件。', newWebhook: '新建 Webhook', noWebhooks: '还没有 Webhook。没有它，程序需自行读取工作状态。', openWebhook: '打开此 Webhook', about: '范围', allWork: '所有工作', eventTypes: '事件', eventTypesNote: '如 response.completed，每行一个；留空：全部', allEvents: '所有事件。', ownerNote: '代替团队', allWorkText: '所有团队和用户的工作', newWebhookText: '接收方用于验证事件的密钥随后显示，且只显示一次。', editWebhookText: '尚未送达的事件也会发送到新的 URL。', webhookSecretText: '请立即将密钥复制到接收方：只显示这一次。', disabledText: '不发送事件', sendTest: '发送测试', newSecret: '更换密钥', newSecretText: '一天之内，事件同时带有新旧密钥的签名：请在此期间修改接收方。', formerSecret: '旧密钥', deleteWebhook: '删除', deleteWebhookText: '尚未送达的事件不再发送，已发送事件的列表也将删除。', deliveries: '已发送的事件', noDeliveries: '还没有事件。可发送测试以检查接收方。', event: '事件', resend: '再次发送', resendText: '接收方将收到相同 id 的事件；如已处理过，可将其忽略。',
  executionsLead: '具名执行器的持久运行，最新的在前。', execution: '执行', ahead: '前面还有', attempts: '尝试',
  conferencesLead: '所有用户的会议：由哪个单元运行，以及如何恢复。', conference: '会议', number: '号码', unit: '单元', endsAt: '结束', titleWord: '标题', epoch: '纪元', recoverable: '可恢复',
  waitsBecause: '等待原因：', recoveries: '恢复与移动', legend: '条：正在运行会议的单元、已释放的单元、结束时丢失的单元。标记：命令。', noRecoveries: '单元没有变化过。', recoveredIn: '恢复用时', notYetRecovered: '尚未恢复', openOn: '已开启于', commands: '命令', command: '命令', noReplyYet: '尚无回复',
  newConference: '新建会议', newConferenceText: '会议将获得一个号码，由媒体单元运行直至结束。您可以通过链接邀请他人。', create: '创建', minutesLong: '结束前的分钟数', takePart: '参加', endIt: '结束', endText: '所有参会者将断开连接，且无法撤销。',
  participantsWord: '参会者', noParticipants: '还没有人加入。', role: '角色', came: '加入时间', byLink: '通过链接', present: '在场', removeIt: '移除', removeText: '该参会者将断开连接，且不能再加入此会议。', removeGuestText: '该来宾将断开连接；只要此链接仍可使用，其仍可作为新来宾再次加入。', removeLinkText: '该来宾将断开连接，此链接不能再用于加入会议。', revokeToo: '同时撤销该来宾使用的链接', removedBy: '移除者：',
  links: '邀请链接', linksLead: '持有链接的人可在允许的次数内加入。链接只显示一次。', noLinks: '还没有链接。', newLink: '新建链接', guests: '来宾人数', revoke: '撤销', revokeText: '不再接纳新的来宾，已加入的不受影响。', revoked: '已撤销', usedUp: '已用完', uses: '已使用', copyLink: '复制', copied: '已复制', linkAddress: '新链接的地址',

  templates: '模板', templatesLead: '可以提交的任务类型。已受理的任务保留其开始时的版本。', findTemplates: '标题、说明或名称', mode: '方式', version: '版本', versions: '版本', source: '来源', changedBy: '操作者', variables: '变量', variable: '变量', needed: '必填', oneOf: '任选其一：', runsIf: '执行条件', always: '总是', jsonBySchema: '按模式的 JSON', stages: '阶段', items: '条目',
  created: '存入时间', trialRun: '试运行', anyLanguage: '任意', language: '语言', found: '个结果', files: '文件', deleteIt: '删除', activate: '启用', discard: '放弃修改', check: '检查', store: '保存并启用', editFiles: '编辑', storeOnly: '保存', tryOut: '试用', unstored: '“编辑”中的修改尚未保存，此处为已保存的版本。', notActive: '未启用', showMessages: '显示消息', messages: '消息',mistakes: '处错误：', checkedNew: '没有错误，将成为新版本。', checkedKnown: '没有错误，此版本已经存在。',
  tryLead: '显示的消息与此版本的模型将收到的完全一致，不会调用任何模型。', trialLead: '试运行是您自己的一个任务，使用此版本，无论其是否启用。', noVariables: '此模板没有变量。', outputs: '前面步骤的输出', outputsLead: '用于显示后续步骤的消息。试运行使用模型的实际回答。', versionUnreadable: '当前的 berth 发行版无法读取此版本。',
  offered: '提供中', deletedOnes: '已删除', deletedAt: '删除', filesRemoved: '其文件已被移除', restore: '恢复', restoreText: '新任务将在一秒内使用此版本。', replacesWord: '替换',
  noModel: '没有模型：', noModelText: '标有“没有模型”的模板在相应级别中会拒绝任务，因为路由配置中没有某个步骤所需的模型。打开模板可查看具体步骤，然后在路由配置（BERTH_ROUTING_FILE）中添加模型，或在模板中改用其他模型。',
  templateDeleted: '此模板不再接受新任务。恢复它或启用其他版本即可重新提供。', templateUnreadable: '当前版本由 berth 的另一个发行版存入，读取方式不同。请重新保存，或启用其他版本。', deleteText: '此模板将不再接受新任务。已受理的任务保留其版本，之后可以重新启用任一版本。', activateText: '新任务将在一秒内使用此版本，已受理的任务保留各自的版本。',

  accountsLead: '点数及其每一次变化。', userPrefix: '用户名开头', tier: '级别', credits: '点数', cost: '费用', action: '操作', subject: '对象', details: '详情', omitted: '未记录', paused: '暂停', name: '名称', step: '步骤', steps: '步骤', price: '价格', code: '代码', message: '说明', refunded: '退还', poolId: '资源池', userId: '用户', withinMs: '期限（毫秒）', ttlMs: '时长（毫秒）', entries: '明细', amount: '数额',
  noEntries: '该用户没有明细：点数从未增加，也从未使用。', addCredits: '增加点数', addCreditsText: '负数表示扣除。原因会显示给用户。',

  reconciliationLead: '比较数据库、Temporal、Redis 与节点的状态，并修复在 berth 之外丢失的内容。', startPass: '开始完整对账', startPassText: '将比较所有未结束的工作，与定期对账并行。', onlyReport: '只报告，不修复',
  lastPass: '上次对账', foundWord: '发现', leftWord: '剩余', foundLabel: '发现', leftLabel: '剩余', findings: '差异', noFindings: '最近的对账没有发现差异。', passes: '对账记录', rule: '规则', rules: '规则', dryRun: '只报告', requested: '手动', fullOnly: '仅完整对账',

  unpolled: '没有工作进程轮询', noKey: '没有工作进程拥有其 API 密钥：不计入名额', backlog: '有工作进程轮询，但工作仍在等待', oldest: '最早', atRisk: '可用，但有风险', unavailableWord: '不可用', temporalUnread: '无法读取 Temporal：新的工作会被拒绝。', runbook: '操作手册：', latePass: '没有完成的对账', since: '自', sinceStart: '自服务器启动以来', late: '已迟', nodesLost: '最近一小时丢失的节点', lostAt: '最近一次丢失', lastReport: '最后上报', allBusy: '有调用结束时', notNew: '最近的变化中没有它。', moved: '已移动',
  ago: '前', justNow: '刚刚',
};

/** The values of the API as texts: [en, zh]. A value without an entry is shown as it is. */
const values: Record<string, [string, string]> = {
  ready: ['Ready', '就绪'], suspect: ['Missing heartbeats', '缺失心跳'], dead: ['Dead', '失效'], removed: ['Removed', '已移除'], cordoned: ['Cordoned', '停止分配'],
  draining: ['Draining', '排空中'], unavailable: ['Service unavailable', '服务不可用'], available: ['Service available', '服务可用'],
  unresponsive: ['missed heartbeats', '缺失心跳'], superseded: ['restarted', '已重启'], withdrawn: ['withdrawn', '已撤出'], service_lost: ['its media server is lost', '其媒体服务器丢失'],
  k_translate: ['Translation', '翻译'], k_media: ['Media', '媒体'], k_engine: ['Engine', '执行引擎'],
  x_offline: ['offline', '离线'], x_suspect: ['missing heartbeats', '缺失心跳'], x_full: ['full', '已满'], x_not_in_pool: ['not in the pool', '不在资源池中'],
  x_capability_missing: ['lacks a capability', '缺少能力'], x_service_unavailable: ['service unavailable', '服务不可用'], x_service_missing: ['lacks a service', '缺少服务'], x_cordoned: ['cordoned', '停止分配'],
  x_draining: ['draining', '排空中'], x_excluded: ['excluded by the request', '被请求排除'],
  'round-robin': ['Round robin', '轮询'], 'load-balanced': ['Least load', '最低负载'], affinity: ['Affinity', '亲和'], capability: ['Capability', '能力'], locality: ['Locality', '就近'],
  'power-of-two': ['Best of two', '二选一'], dynamic: ['Dynamic', '动态'], 'by-size': ['Automatic', '自动'],
  running: ['Running', '运行中'], waiting: ['Waiting', '等待'], paused: ['Paused', '已暂停'], probing: ['Probing', '探测中'], completed: ['Completed', '已完成'], failed: ['Failed', '失败'], cancelled: ['Cancelled', '已取消'],
  done: ['Done', '完成'], open: ['Open', '进行中'], finalized: ['Finalized', '已结束'], lost: ['Lost', '丢失'], timed_out: ['Timed out', '超时'], creating: ['Creating', '创建中'],
  'awaiting-connection': ['Awaiting its unit', '等待单元连接'], 'awaiting-recovery': ['Awaiting recovery', '等待恢复'], ended: ['Ended', '已结束'], deleted: ['Not opened', '未开启'],
  released: ['released', '已释放'], end_time: ['end time reached', '到达结束时间'], ended_by_unit: ['ended by its unit', '由单元结束'], refused: ['refused', '被拒绝'], no_room: ['no capacity', '容量不足'],
  no_licence: ['no licence', '没有许可'], not_recovered: ['not recovered', '未能恢复'], not_recoverable: ['not recoverable', '不可恢复'], unit_lost: ['unit lost', '单元丢失'], replaced: ['replaced', '被替换'], drained: ['drained', '已排空'],
  acknowledged: ['acknowledged', '已确认'], manual: ['by the user', '由用户结束'], timeout: ['timeout', '超时'], max_duration: ['maximum duration', '达到最长时间'],
  'local simulator': ['simulator', '模拟器'], simulator: ['simulator', '模拟器'],
  o_active: ['Active', '使用中'], o_deleted: ['Deleted', '已删除'], o_unreadable: ['Unreadable', '无法读取'], o_builtin: ['built-in', '内置'], o_directory: ['directory', '目录'], o_api: ['API', 'API'],
  r_system: ['system', '系统'], r_user: ['user', '用户'], r_model: ['model', '模型'],
  why_limit: ['at its limit', '已达限制'], why_above: ['a level above is at its limit', '上级已达限制'], why_upstreams: ['no upstream that can serve it is free', '可用的上游没有空闲'], why_next: ['next', '下一个'], why_order: ['others are before it', '前面还有其他'],
  m_why_unknown: ['Waits: no revision of the routing has this model. Add it to the routing.', '正在等待：没有任何路由版本包含此模型。请将其加入路由配置。'], m_why_unpolled: ['Waits: no worker polls its task queue. Start a worker.', '正在等待：没有工作进程轮询其任务队列。请启动工作进程。'], m_why_grace: ['Waits: Redis may have lost its data, and grants nothing for some seconds', '正在等待：Redis 可能丢失了数据，几秒内不授予槽位'], m_why_paused: ['Waits: paused by an operator', '正在等待：由运维人员暂停'], m_why_upstreams: ['Waits: no upstream takes a call now', '正在等待：目前没有上游可接受调用'], m_why_limits: ['Waits: what waits is at limits of its own', '正在等待：等待者已达自身的限制'], m_why_starting: ['The next calls are on their way', '下一批调用即将开始'],
  u_open: ['Takes calls', '可接受调用'], u_paused: ['Paused', '已暂停'], u_probing: ['Probing', '探测中'], u_full: ['All slots in use', '槽位已满'], u_provider: ['Its provider is full', '服务商已满'], u_pace: ['Limited per minute', '每分钟限额'],
  l_queue: ['queue', '队列'], l_team: ['team', '团队'], l_app: ['application', '应用'], l_user: ['user', '用户'], l_key: ['API key', 'API 密钥'], l_endUser: ['end user', '最终用户'], o_file: ['file', '文件'], r_earlier: ['Earlier', '较早'],
  m_stream: ['stream', '流式'], m_batch: ['batch', '批量'], m_vision: ['vision', '图像'], v_text: ['text', '文字'], v_document: ['document', '文档'], v_image: ['image', '图片'],
  host: ['Host', '主持人'], participant: ['Participant', '参会者'], listener: ['Listener', '仅收听'],
  a_first: ['first', '首个'], a_hit: ['kept', '命中'], a_miss: ['missed', '未命中'],
  e_grant: ['Grant', '发放'], e_correction: ['Correction', '更正'], e_charge: ['Charge', '扣费'], e_refund: ['Refund', '退款'], e_carried: ['Carried', '结转'],
  h_refused: ['Refused', '被拒绝'], h_none: ['No result recorded', '没有记录结果'],
  d_durable: ['by a workflow', '由工作流执行'], d_direct: ['directly', '直接执行'], t_all: ['as those of tasks', '与任务相同'], t_errors: ['of failed calls only', '仅失败的调用'], t_metadata: ['only for retries', '仅供重试'], t_none: ['not at all', '不保留'],
  hook_enabled: ['Enabled', '已启用'], hook_disabled: ['Disabled', '已停用'], hook_pending: ['Pending', '待送达'], hook_delivered: ['Delivered', '已送达'], hook_failed: ['Failed', '失败'],
  key_valid: ['Valid', '有效'], key_expired: ['Expired', '已到期'], key_revoked: ['Revoked', '已撤销'], period_day: ['Day', '每天'], period_week: ['Week', '每周'], period_month: ['Month', '每月'], period_total: ['In total', '总计'],
  p_quick: ['Quick', '快速'], p_full: ['Full', '完整'], stopped: ['Stopped', '已停止'], skipped: ['Skipped', '已跳过'], incomplete: ['Incomplete', '不完整'], found: ['Found', '发现'], gone: ['Gone', '已消失'], holds: ['Holds', '仍存在'], repaired: ['Repaired', '已修复'],
  c_node: ['node', '节点'], c_strategy: ['strategy', '策略'], c_config: ['configuration', '配置'], c_model: ['model', '模型'], c_task: ['task', '任务'], c_turn: ['turn', '轮次'], c_execution: ['execution', '执行'],
  c_conference: ['conference', '会议'], c_reconciliation: ['reconciliation', '对账'], pools: ['Pools', '资源池'], tenants: ['Tenants', '租户'], strategy: ['Fleet configuration', '全局配置'], services: ['Services', '服务'],
};

export const consoleWords = { en, zh };

export const valueWord = (value: string, lang: 'en' | 'zh') => values[value]?.[lang === 'zh' ? 1 : 0];
