// The texts of the page in both languages. zh has the type of en, so a missing text is a compile error.
import { maxTextBytes } from './form';
import type { PoolView } from './openapi';
import { consoleWords, valueWord, type ConsoleWords } from './words';

const en = {
  productLine: 'New task',
  productSub: 'Choose what you need, and watch the answer being written. You can close the page at any time; the work continues.',
  signInLine: 'Sign in to start tasks and to read their results.',
  newTask: 'New task', yourTasks: 'Your tasks', console: 'Console', signOut: 'Sign out', signedInAs: 'Signed in as', otherLanguage: '中文',
  skip: 'Skip to the content',

  signIn: 'Sign in', token: 'Access token', tokenHint: 'Paste the token printed by make run, or create one:',
  tokenPrivate: 'The token is stored in this browser until you sign out.',
  tokenWrong: 'This token is invalid or has expired. Create a new one and paste it.',
  oidcLine: 'Sign in with your organization, or with an access token below.', oidcSignIn: 'Sign in with your organization',
  oidcUnreachable: 'The identity provider cannot be reached from this browser, or does not permit this page to call it.',
  oidcState: 'This answer of the identity provider belongs to no sign-in of this tab. Sign in again.',
  oidcRefused: 'The identity provider refused the sign-in.',
  oidcInsecure: 'This browser signs in with a provider only on a page with https, or on this machine.',
  oidcRejected: 'The server does not accept the token of the identity provider. The operator must check its audience and issuer.',
  oidcExpired: 'Your sign-in has expired. Sign in again.',
  unreachable: 'Cannot reach the server. Is it running?', checking: 'Checking…',

  what: 'What do you need?', mode_stream: 'Answer appears as it is written', mode_batch: 'Answer appears when complete', findTemplate: 'Search', moreTemplates: '{0} more. Search for what you need.', noTemplate: 'Nothing matches.', noTemplates: 'There are no templates yet.',
  oneOf: 'One of these', byDefault: 'Without an entry: {0}',
  language: 'Answer language', service: 'Service', serviceHint: 'The service this task belongs to: 1 to 128 letters, digits and characters of _.@-. The names session, conference and operator are reserved.',
  start: 'Start', starting: 'Starting…', uploading: 'Uploading the file…',
  clear: 'Clear', optional: 'optional', more: 'Add more context',
  upload: 'Open a file', dropText: 'Paste the text here, or drop a text file or a document.',
  dropBoth: 'Paste the text or a screenshot here, or drop a file.', dropImage: 'Paste a screenshot here, or drop an image.',
  dropNow: 'Drop it here', removeImage: 'Remove the image', imageNote: 'The text will be read from this image.',
  documentNote: 'The text will be taken from this file.', removeDocument: 'Remove the file',
  chars: 'characters', required: 'This field is required.', dismiss: 'Dismiss', pasted: 'Pasted image', notUploaded: 'It is not uploaded.',
  textOnly: 'This field takes text only.', textTooLong: 'The text is too long: it has {0}, and the limit is {1}.',
  uploadLost: 'The upload was interrupted. The server is unreachable, or the file is too large ({0}).', missingTemplates: 'Could not load the templates.', retry: 'Try again',
  fixErrors: 'Check the marked field.', fixErrorsAll: 'Check the marked fields.',
  price: 'Price:', priceNone: 'This task costs no credits.', balanceAfter: 'Balance afterwards:', metered: 'by use',
  meteredNote: 'the most that it may cost is reserved, and the rest returned at the end. If your credits do not suffice for that, the task uses the free queue and model.',
  priceFree: 'Your credits do not suffice, so the task uses the free queue and model at no charge.',

  s_PENDING: 'Accepted', s_QUEUED: 'Waiting', s_PAUSED: 'Model paused',
  s_THINKING: 'Thinking', s_RETRYING: 'Retrying', s_STREAMING: 'Writing', s_COMPLETED: 'Done', s_TRUNCATED: 'Done, incomplete', s_FAILED: 'Failed', s_CANCELLED: 'Cancelled',

  waiting: 'Waiting for the previous step', queued: 'In the queue', nextUp: 'Next in the queue', modelPaused: 'The model is paused', about: 'about',
  running: 'Running', finished: 'Done', stopped: 'Not run', failed: 'Failed here', cancelledHere: 'Cancelled here', notKnown: 'Not known until the server can be reached',
  via: 'via', steps: 'Steps', showOutput: 'Show the output', stageOf: '{0}, part {1} of {2}',

  answer: 'Answer', yes: 'yes', no: 'no', of: 'of', soFar: '{0} so far', showAll: 'Show all {0}', raw: 'Raw JSON', nothingYet: 'The answer will appear here as it is written.',
  nothingWritten: 'No text was written.', unreachableStatus: 'Server unreachable',
  submitted: 'Submitted', text: 'Text', image: 'Image', copyJson: 'Copy as JSON', copyCurl: 'Copy as curl', inputErased: 'Erased, by you or because of its age.',
  again: 'Run again', edit: 'Edit', replaceDraft: 'The form has what you have entered before. It is replaced by what was submitted for this task.', keepDraft: 'Keep the form',
  templateGone: 'This template is no longer offered.', otherVersion: 'This task has another version of the template than new tasks. “Run again”, “Edit” and copied requests use the active one.',
  template: 'Template', version: 'Version', charged: 'Price', ended: 'Ended',
  copy: 'Copy', copied: 'Copied', cancel: 'Cancel', cancelling: 'Cancelling…', temporal: 'Run in Temporal',
  'of_openai/responses': 'Response', 'of_openai/chat': 'Chat', copyId: 'Copy the id',
  taskId: 'Task', replaces: 'Replaces', replacedBy: 'Made again as', created: 'Accepted', took: 'Time', tokens: 'Tokens', tokensIn: 'in', tokensOut: 'out', tier_paid: 'paid', tier_free: 'free', tier: 'Tier',
  erased: 'The texts of this task were erased, by you or because of their age. Its status remains.',
  truncated: 'The answer is incomplete: the model reached its length limit.',
  promptTruncated: 'The model read only a part of your texts: they exceed what its server accepts. Shorten them, or tell the operator.',
  p_context: 'The texts are too long for the model. Shorten them.',
  p_refused: 'The content filter of the model provider refused the texts or the answer. Change the texts.',
  p_credit: 'The account of this server at the model provider has no credit. The operator must add some.',
  p_model: 'The model provider does not know the model. The operator must correct the routing.',
  p_limit: 'The model provider received too many requests. Try again later.',
  p_overload: 'The model provider is overloaded. Try again later.',
  p_timeout: 'The model provider did not answer in time. Try again later.',
  p_large: 'The request is too large for the model provider. Use shorter texts or a smaller image.',
  p_wait: 'The model provider accepts no calls until {0}. Submit again later.',
  p_region: 'The model provider does not serve the region of this server. The operator must use another provider.',
  p_blocked: 'Something in front of the model provider, such as a proxy, refused the call. The operator must check the address, the network and the proxy.',
  p_tokens: 'The answer reached the token limit of the model before its end. The operator must raise maxOutputTokens.',
  p_format: 'The answer of the model does not have the format that this task needs. Submit again, or ask the operator for another model.',
  simulatedTitle: 'Simulated answer.',
  simulated: 'No provider key is set, so the local simulator derived this answer from your text. No language model was called.',
  reset: 'The call failed or was interrupted. This step is starting again; your input is safe.',
  resetPast: 'A call failed or was interrupted, so a step ran again. The text is that of its last run.',
  gap: 'Part of the text was removed before this page could read it. The full text will appear when the task is done.',
  reconnecting: 'Connection lost. Reconnecting…', polling: 'Live updates are unavailable. Checking the status regularly instead.',
  crowded: 'Other windows of this page use all live connections of the browser. The status is checked every few seconds, and the text is shown at the end. Close or hide another window to see it live.',
  down: 'The server cannot be reached. The task is not lost: it continues there, and is shown here when the server is back.',
  cancelled: 'This task was cancelled.', partKept: 'The text written until then is below. It is kept for a few minutes only.',
  partGone: 'The text written until then is kept for a few minutes only, and is no longer available.', partNone: 'No text had been written.',
  notFound: 'Task not found, or you do not have access to it.',
  pageNotFound: 'Page not found.', back: 'Back to the start', loading: 'Loading…',
  failedTitle: 'This task did not finish.', madeAgain: 'Its answer broke off, and is made again from the beginning as another response.', notCharged: 'No credits were charged.', refunded: '{0} refunded.',
  erase: 'Erase the texts', eraseText: 'Your inputs, what each step wrote and the answer are erased, except what another of your tasks also uses. The status, times and token counts of the task remain. This cannot be undone.',
  downgraded: 'Your credits did not suffice: this task uses the free queue and model, and costs nothing.',

  e_deadline_exceeded: 'The task exceeded its time limit.', e_provider_key: 'The model provider rejected this server\'s API key. The operator must set a valid one.',
  e_provider_rejected: 'The model provider rejected the request. Retrying will not help.',
  e_provider_unavailable: 'The model provider is unreachable or keeps failing. Try again later.',
  e_invalid_output: 'The model\'s answer could not be used: it was empty, too long or in the wrong format.',
  e_not_started: 'The call was not made before its worker or task ended.',
  e_interrupted: 'The call was interrupted before its outcome was recorded.',
  e_not_served: 'No worker serves a model that this task needs. Please try again later.',
  e_erased: 'The content was erased.',
  e_lost: 'The task was lost outside of this program. Submit it again.',
  e_unreadable_image: 'No text could be read from the image. Try a sharper one, or paste the text.',
  e_rate_limited: 'Too many requests.', e_queue_full: 'The queue is full.', tryIn: 'Try again in {0} s.',
  e_unavailable: 'The server is temporarily unavailable. Try again in a moment.',
  e_proxy: 'The proxy in front of the server has no answer from it. Try again in a moment.', e_proxy_limit: 'A proxy in front of the server refuses contents of this size. Its operator must raise the limit (nginx: client_max_body_size).', e_internal: 'Something went wrong on the server.',
  e_forbidden: 'Your token does not permit this.', e_too_large: 'The content is too large.', e_unsupported_media: 'This file type is not supported.',
  e_idempotency_mismatch: 'This id was already used for another request.', e_other: 'The server refused this: ',

  r_encrypted: 'The file is protected by a password. Remove the protection, or paste its text.',
  r_noText: 'The file contains no text. Upload scanned pages as images.',
  r_damaged: 'The file is damaged or incomplete.',
  r_brokenImage: 'The image is damaged or incomplete.',
  r_complex: 'The file is too complex. Paste its text instead.',
  r_noPDF: 'This server cannot read PDF files. Paste the text instead.',
  r_encoding: 'The text is not in UTF-8. Save the file in UTF-8, or paste its text.',
  r_empty: 'The file is empty.',
  r_character: 'Remove the character {0}, which names must not contain.', r_direction: 'Part of the text is written in another direction that does not end. Type it again, without copied characters that are not seen.',
  r_invisible: 'Nothing of this text can be seen. Type some letters.', r_longName: 'This has {0} characters; at most {1} are allowed.', r_longerName: 'This is too long; at most {0} characters are allowed.',
  r_unknown: 'This is neither text nor a document or image of a known kind. Copy the text and paste it here.',
  r_emptyPage: 'The page contains no text. Open it in a browser and save it as PDF.',
  r_unmapped: 'The text of this PDF cannot be read. Print it to a new PDF, or upload its pages as images.',
  r_saveImage: 'This kind of file is not supported ({0}). Save it as JPEG or PNG.',
  r_saveDocument: 'This kind of file is not supported ({0}). Save it as DOCX or PDF.',
  r_savePDF: 'This kind of file is not supported ({0}). Save it as PDF.',
  r_unpack: 'This kind of file is not supported ({0}). Unpack it and upload the files in it.',
  r_writeText: 'This kind of file is not supported ({0}). Paste its content as text.',
  r_wide: 'The image is {0} pixels wide. At most {1} are read. Scale it down, or upload a part of it.',
  r_high: 'The image is {0} pixels high. At most {1} are read. Scale it down, or upload a part of it.',
  r_pixels: 'The image has {0} × {1} pixels. At most {2} million are read.',
  r_taskEnded: 'This task has already ended.', r_templateDeleted: 'The template {0} is already deleted, by {1}. Restore it to offer it again.',
  r_context: 'The text is too long for the model: about {0} tokens, and at most {1} fit. Shorten it.',
  r_textLimit: 'The text is too long: the limit is {0}.',
  r_limit: 'This is too large: the limit is {0}.',
  r_assetGone: 'The server no longer has this file. Choose it again.',

  noTasks: 'No tasks yet. Tasks you start will appear here.', allTasks: 'All tasks', older: 'Older', historyFailed: 'Could not load the list.',
  findTitle: 'Search titles', all: 'All', open: 'Not ended', noneFound: 'No task matches.', listed: 'Tasks listed: {0}', listedMore: 'Tasks listed: {0}, and there are more',
  colTask: 'Task', colStatus: 'Status', colWhen: 'Started',
  credits: 'Credits', creditsLead: 'What added credits to your account and what used them, newest first.', creditsFailed: 'Could not load the entries.',
  noCredits: 'No entries yet.', colWhat: 'What', colAmount: 'Amount',
  x_grant: 'Added by an operator', x_correction: 'Corrected by an operator', x_charge: 'Task', x_refund: 'Refund for task', x_carried: 'Earlier entries together',
};

export type Words = typeof en;
export type Word = keyof Words;

const zh: Words = {
  productLine: '新任务',
  productSub: '选择您需要的内容，实时查看回答的生成。可以随时关闭页面，任务会继续执行。',
  signInLine: '登录后即可新建任务并查看结果。',
  newTask: '新任务', yourTasks: '我的任务', console: '控制台', signOut: '退出', signedInAs: '当前用户', otherLanguage: 'English',
  skip: '跳到正文',

  signIn: '登录', token: '访问令牌', tokenHint: '粘贴 make run 启动时输出的令牌，或新建一个：',
  tokenPrivate: '令牌只保存在此浏览器中，退出登录后删除。',
  tokenWrong: '令牌无效或已过期。请新建一个并粘贴。',
  oidcLine: '使用组织账号登录，或在下方使用访问令牌。', oidcSignIn: '使用组织账号登录',
  oidcUnreachable: '此浏览器无法连接身份提供方，或身份提供方不允许此页面访问。',
  oidcState: '身份提供方的这次回应不属于此标签页发起的登录。请重新登录。',
  oidcRefused: '身份提供方拒绝了登录。',
  oidcInsecure: '只有 https 页面或本机页面才能使用身份提供方登录。',
  oidcRejected: '服务器不接受身份提供方的令牌。请管理员检查其受众和签发者。',
  oidcExpired: '登录已过期，请重新登录。',
  unreachable: '无法连接服务器，请确认服务器正在运行。', checking: '正在验证…',

  what: '您需要什么？', mode_stream: '回答边写边显示', mode_batch: '回答完成后显示', findTemplate: '搜索', moreTemplates: '还有 {0} 个，请搜索。', noTemplate: '没有匹配的内容。', noTemplates: '还没有模板。',
  oneOf: '任选其一', byDefault: '不填时：{0}',
  language: '回答语言', service: '服务', serviceHint: '任务所属的服务：1 至 128 个字符，可用字母、数字和 _.@-。session、conference 和 operator 为保留名称。',
  start: '开始', starting: '正在提交…', uploading: '正在上传文件…',
  clear: '清空', optional: '选填', more: '补充更多信息',
  upload: '打开文件', dropText: '在此粘贴文字，或拖入文本文件或文档。',
  dropBoth: '在此粘贴文字或截图，也可拖入文件。', dropImage: '在此粘贴截图，或拖入图片。',
  dropNow: '松开即可', removeImage: '移除图片', imageNote: '将从这张图片中识别文字。',
  documentNote: '将提取该文件中的文字。', removeDocument: '移除文件',
  chars: '字', required: '此项必填。', dismiss: '忽略', pasted: '粘贴的图片', notUploaded: '未能上传。',
  textOnly: '此处只接受文字。', textTooLong: '文字过长：大小为 {0}，上限为 {1}。',
  uploadLost: '上传中断：无法连接服务器，或文件过大（{0}）。', missingTemplates: '无法载入模板。', retry: '重试',
  fixErrors: '请检查标记的字段。', fixErrorsAll: '请检查所有标记的字段。',
  price: '价格：', priceNone: '此任务不消耗点数。', balanceAfter: '扣除后余额：', metered: '按用量',
  meteredNote: '先预留最高可能费用，结束后退还余额。若点数不足以预留，任务将使用免费队列和模型。',
  priceFree: '点数不足，任务将使用免费队列和模型，不收费。',

  s_PENDING: '已受理', s_QUEUED: '排队中', s_PAUSED: '模型已暂停',
  s_THINKING: '思考中', s_RETRYING: '重试中', s_STREAMING: '撰写中', s_COMPLETED: '已完成', s_TRUNCATED: '已完成，不完整', s_FAILED: '失败', s_CANCELLED: '已取消',

  waiting: '等待上一步', queued: '排队中', nextUp: '即将开始', modelPaused: '模型已暂停', about: '约',
  running: '进行中', finished: '完成', stopped: '未执行', failed: '在此失败', cancelledHere: '在此取消', notKnown: '连接服务器后才能得知',
  via: '队列', steps: '步骤', showOutput: '查看输出', stageOf: '{0}，第 {1} 部分，共 {2} 部分',

  answer: '回答', yes: '是', no: '否', of: '/', soFar: '目前 {0} 项', showAll: '显示全部 {0} 项', raw: '原始 JSON', nothingYet: '回答生成时会显示在这里。',
  nothingWritten: '没有生成任何内容。', unreachableStatus: '无法连接服务器',
  submitted: '提交的内容', text: '文字', image: '图片', copyJson: '复制为 JSON', copyCurl: '复制为 curl', inputErased: '已删除：由您删除，或已超过保存期限。',
  again: '再次运行', edit: '编辑', replaceDraft: '表单中有您先前输入的内容，将替换为此任务提交的内容。', keepDraft: '保留表单',
  templateGone: '已不再提供此模板。', otherVersion: '此任务使用的不是模板的当前版本。“再次运行”、“编辑”和复制的请求使用当前版本。',
  template: '模板', version: '版本', charged: '价格', ended: '结束时间',
  copy: '复制', copied: '已复制', cancel: '取消任务', cancelling: '正在取消…', temporal: '在 Temporal 中查看',
  'of_openai/responses': '响应', 'of_openai/chat': '对话', copyId: '复制编号',
  taskId: '任务', replaces: '替代', replacedBy: '重新生成为', created: '受理', took: '用时', tokens: 'Token 数', tokensIn: '输入', tokensOut: '输出', tier_paid: '付费', tier_free: '免费', tier: '级别',
  erased: '此任务的文本已被删除（由您操作或因保留期已满），仅保留其状态。',
  truncated: '回答不完整：模型达到了长度上限。',
  promptTruncated: '模型只读取了部分文本：文本超出了其服务器的上限。请缩短文本，或告知管理员。',
  p_context: '文本超出模型的长度上限，请缩短。',
  p_refused: '模型服务的内容审核拒绝了文本或回答，请修改文本。',
  p_credit: '本服务器在模型服务的账户余额不足，需要管理员充值。',
  p_model: '模型服务没有该模型，需要管理员更正路由配置。',
  p_limit: '模型服务收到的请求过多，请稍后再试。',
  p_overload: '模型服务负载过高，请稍后再试。',
  p_timeout: '模型服务未能及时响应，请稍后再试。',
  p_large: '请求超出模型服务的大小上限，请缩短文本或使用更小的图片。',
  p_wait: '模型服务在 {0} 之前不接受请求，请稍后再提交。',
  p_region: '模型服务不支持本服务器所在的地区，需要管理员更换服务商。',
  p_blocked: '请求在到达模型服务之前被拒绝（例如被代理拒绝），需要管理员检查地址、网络和代理。',
  p_tokens: '回答在完成之前达到了模型的 Token 上限，需要管理员调高 maxOutputTokens。',
  p_format: '模型的回答不符合此任务所需的格式。请重新提交，或请管理员更换模型。',
  simulatedTitle: '模拟回答。',
  simulated: '未设置模型服务的密钥，此回答由本地模拟器根据您提供的文字推导得出，没有调用任何语言模型。',
  reset: '调用失败或被中断，正在重新执行这一步。您提交的内容不会丢失。',
  resetPast: '有调用失败或被中断，其中一步已重新执行。显示的是最后一次执行的内容。',
  gap: '部分文字在本页面读取之前已被清理，任务完成后将显示全文。',
  reconnecting: '连接中断，正在重新连接…', polling: '暂时无法接收实时更新，已改为定期查询状态。',
  crowded: '此页面的其他窗口占用了浏览器的全部实时连接。状态每隔几秒查询一次，文字将在结束时显示。关闭或隐藏其他窗口即可实时查看。',
  down: '无法连接服务器。任务不会丢失：它会在服务器上继续，连接恢复后在此显示。',
  cancelled: '此任务已取消。', partKept: '下面是取消前生成的内容，只保留几分钟。',
  partGone: '取消前生成的内容只保留几分钟，现已无法查看。', partNone: '取消前没有生成内容。',
  notFound: '任务不存在，或您无权查看。',
  pageNotFound: '页面不存在。', back: '返回首页', loading: '正在载入…',
  failedTitle: '任务没有完成。', madeAgain: '回答中途断开，已另建一个响应从头重新生成。', notCharged: '未扣除点数。', refunded: '已退还 {0}。',
  erase: '删除文本', eraseText: '将删除您提交的内容、各步骤的输出和回答，您的其他任务也在使用的内容除外。任务的状态、时间和 Token 数会保留。此操作无法撤销。',
  downgraded: '点数不足：此任务使用免费队列和模型，不收费。',

  e_deadline_exceeded: '任务超出了时限。', e_provider_key: '模型服务拒绝了本服务器的密钥，需要管理员设置有效的密钥。',
  e_provider_rejected: '模型服务拒绝了该请求，重试无效。',
  e_provider_unavailable: '模型服务无法连接或持续出错，请稍后再试。',
  e_invalid_output: '模型的回答无法使用：内容为空、过长或格式不正确。',
  e_not_started: '在其工作进程或任务结束之前，调用尚未发出。',
  e_interrupted: '调用在记录结果之前被中断。',
  e_not_served: '目前没有处理程序可以运行此任务所需的模型，请稍后再试。',
  e_erased: '内容已删除。',
  e_lost: '任务在本程序之外丢失，请重新提交。',
  e_unreadable_image: '无法从图片中识别文字。请换一张更清晰的，或直接粘贴文字。',
  e_rate_limited: '请求过于频繁。', e_queue_full: '队列已满。', tryIn: '请在 {0} 秒后重试。',
  e_unavailable: '服务器暂时不可用，请稍后再试。',
  e_proxy: '服务器前面的代理没有得到服务器的应答，请稍后再试。', e_proxy_limit: '服务器前面的代理不接受这么大的内容，请运维人员调高上限（nginx：client_max_body_size）。', e_internal: '服务器出错了。',
  e_forbidden: '您的令牌没有此权限。', e_too_large: '内容过大。', e_unsupported_media: '不支持这种文件类型。',
  e_idempotency_mismatch: '该编号已用于另一个请求。', e_other: '服务器未接受：',

  r_encrypted: '文件有密码保护，请解除保护，或直接粘贴文字。',
  r_noText: '文件中没有文字。扫描件请以图片形式上传。',
  r_damaged: '文件已损坏或不完整。',
  r_brokenImage: '图片已损坏或不完整。',
  r_complex: '文件过于复杂，请改为粘贴文字。',
  r_noPDF: '此服务器无法读取 PDF 文件，请改为粘贴文字。',
  r_encoding: '文字不是 UTF-8 编码。请将文件另存为 UTF-8，或直接粘贴文字。',
  r_empty: '文件是空的。',
  r_character: '请删除字符 {0}，名称中不能使用。', r_direction: '部分文字使用了没有结束的另一种书写方向。请重新输入，不要带入看不见的字符。',
  r_invisible: '文字全都看不见，请输入一些文字。', r_longName: '共 {0} 个字符，最多 {1} 个。', r_longerName: '内容过长，最多 {0} 个字符。',
  r_unknown: '该文件不是文本，也不是可识别的文档或图片。请复制其中的文字粘贴到这里。',
  r_emptyPage: '网页中没有文字。请在浏览器中打开，另存为 PDF。',
  r_unmapped: '无法读取此 PDF 的文字。请重新打印为 PDF，或以图片形式上传。',
  r_saveImage: '不支持这种文件（{0}），请另存为 JPEG 或 PNG。',
  r_saveDocument: '不支持这种文件（{0}），请另存为 DOCX 或 PDF。',
  r_savePDF: '不支持这种文件（{0}），请另存为 PDF。',
  r_unpack: '不支持这种文件（{0}），请解压后上传其中的文件。',
  r_writeText: '不支持这种文件（{0}），请粘贴其中的文字。',
  r_wide: '图片宽 {0} 像素，最多支持 {1} 像素。请缩小，或只上传一部分。',
  r_high: '图片高 {0} 像素，最多支持 {1} 像素。请缩小，或只上传一部分。',
  r_pixels: '图片为 {0} × {1} 像素，最多支持 {2} 百万像素。',
  r_taskEnded: '任务已经结束。', r_templateDeleted: '模板 {0} 已由 {1} 删除。恢复后即可重新提供。',
  r_context: '文字超出模型的长度限制：约 {0} 个 Token，最多 {1} 个。请缩短。',
  r_textLimit: '文字过长，上限为 {0}。',
  r_limit: '内容过大，上限为 {0}。',
  r_assetGone: '服务器上已没有这个文件，请重新选择。',

  noTasks: '还没有任务，新建的任务会显示在这里。', allTasks: '全部任务', older: '更早', historyFailed: '无法载入列表。',
  findTitle: '搜索标题', all: '全部', open: '进行中', noneFound: '没有符合条件的任务。', listed: '已列出 {0} 个任务', listedMore: '已列出 {0} 个任务，还有更多',
  colTask: '任务', colStatus: '状态', colWhen: '开始时间',
  credits: '点数', creditsLead: '点数的增加与使用记录，最新的在前。', creditsFailed: '无法载入明细。',
  noCredits: '还没有明细。', colWhat: '内容', colAmount: '数额',
  x_grant: '由运维人员增加', x_correction: '由运维人员更正', x_charge: '任务', x_refund: '任务退款', x_carried: '更早的明细合计',
};

export type Lang = 'en' | 'zh';
const kept = 'berth.lang';

function initial(): Lang {
  const saved = localStorage.getItem(kept);
  if (saved === 'en' || saved === 'zh') return saved;
  return /^(zh|cmn|yue)\b/i.test(navigator.language) ? 'zh' : 'en';
}

class I18n {
  lang = $state<Lang>(initial());

  /** The texts in the current language. */
  get t(): Words {
    return this.lang === 'zh' ? zh : en;
  }

  /** The texts of the console in the current language. */
  get w(): ConsoleWords {
    return consoleWords[this.lang];
  }

  /** Returns a value of the API as a text; of "refused: why" only the first part is translated. */
  state(value: string): string {
    const [first, ...rest] = value.split(': ');
    const word = valueWord(first.startsWith('k_') || first.startsWith('x_') ? value : first, this.lang) ?? first.replace(/^[a-z]_/, '');
    return rest.length ? `${word}: ${rest.join(': ')}` : word;
  }

  /** Says why a pool has its current strategy. */
  why(p: PoolView): string {
    const last = p.switches?.[0];
    if (p.strategy === 'dynamic') {
      return last ? `${this.w.whySwitched} ${Math.round(100 * (last.by.load ?? 0))}%, ${Math.round(last.by.latencyMs ?? 0)} ms` : this.w.whyStart;
    }
    if (p.strategy) return this.w.whySet;
    return p.strategyNow ? this.w.whyDefault : this.w.whySize;
  }

  /** Formats a time of day with seconds, and the date if it is not today. */
  clock(ms: number): string {
    if (!ms) return '';
    const d = new Date(ms);
    const day = d.toDateString() === new Date().toDateString() ? '' : `${d.toLocaleDateString(this.lang === 'zh' ? 'zh-CN' : 'en-GB', { day: 'numeric', month: 'short' })} `;
    return day + d.toLocaleTimeString('en-GB');
  }

  /** Formats how long ago a time was. */
  ago(time: string): string {
    const ms = Date.now() - Date.parse(time);
    if (!Number.isFinite(ms)) return '';
    if (ms < 1000) return this.w.justNow;
    return this.lang === 'zh' ? `${this.duration(ms)}${this.w.ago}` : `${this.duration(ms)} ${this.w.ago}`;
  }

  toggle() {
    this.lang = this.lang === 'zh' ? 'en' : 'zh';
    localStorage.setItem(kept, this.lang);
  }

  /** Returns the text for a key built from data, or the fallback if there is none. */
  maybe(key: string, fallback: string): string {
    return (this.t as Record<string, string>)[key] ?? fallback;
  }

  /** Returns the name of a field, a step or the like as a readable label, for what has no title. */
  label(key: string): string {
    const words = key.replace(/([a-z\d])([A-Z])/g, '$1 $2').replace(/[_-]+/g, ' ').toLowerCase();
    return words.charAt(0).toUpperCase() + words.slice(1);
  }

  /** Formats a measured duration. */
  duration(ms: number): string {
    const s = Math.max(0, ms) / 1000;
    const [unitS, unitM] = this.lang === 'zh' ? [' 秒', ' 分 '] : [' s', ' min '];
    if (s < 60) return (s < 10 ? s.toFixed(1) : String(Math.round(s))) + unitS;
    return Math.floor(s / 60) + unitM + String(Math.floor(s % 60)).padStart(2, '0') + unitS;
  }

  /** Formats an estimated duration: in seconds, and in minutes from one minute on. */
  estimate(seconds: number): string {
    const s = Math.max(1, Math.round(seconds));
    if (s < 60) return s + (this.lang === 'zh' ? ' 秒' : ' s');
    return Math.round(s / 60) + (this.lang === 'zh' ? ' 分钟' : ' min');
  }

  /** Formats a duration that may be less than a second. */
  span(ms: number): string {
    return ms < 1000 ? `${Math.round(Math.max(0, ms))} ms` : this.duration(ms);
  }

  /** Formats a time: time of day if it is today, otherwise with the date. */
  when(ms: number): string {
    if (!ms) return '';
    const d = new Date(ms);
    const today = d.toDateString() === new Date().toDateString();
    const locale = this.lang === 'zh' ? 'zh-CN' : 'en-GB';
    return d.toLocaleString(locale, today ? { hour: '2-digit', minute: '2-digit' } : { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
  }

  /** Formats a time with its date and year, to the minute. */
  moment(ms: number): string {
    if (!ms) return '';
    return new Date(ms).toLocaleString(this.lang === 'zh' ? 'zh-CN' : 'en-GB', { dateStyle: 'medium', timeStyle: 'short' });
  }

  /** Formats a time with its date and zone. */
  exact(ms: number): string {
    if (!ms) return '';
    return new Date(ms).toLocaleString(this.lang === 'zh' ? 'zh-CN' : 'en-GB', { dateStyle: 'medium', timeStyle: 'long' });
  }

  /** Formats how long ago a time was, in the largest unit. */
  relative(ms: number): string {
    const seconds = Math.max(0, Date.now() - ms) / 1000;
    const units: [Intl.RelativeTimeFormatUnit, number][] = [['year', 31_557_600], ['month', 2_629_800], ['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]];
    const [unit, length] = units.find(([, s]) => seconds >= s) ?? ['second', 1];
    return new Intl.RelativeTimeFormat(this.lang === 'zh' ? 'zh-CN' : 'en-GB', { numeric: 'auto' }).format(-Math.floor(seconds / length), unit);
  }

  /** Formats how many calls a model serves before one; an unknown number is negative. */
  ahead(n: number): string {
    if (n < 0) return this.t.queued;
    if (n === 0) return this.t.nextUp;
    return this.lang === 'zh' ? `前面还有 ${this.number(n)} 个` : `${this.number(n)} ahead`;
  }

  /** Formats the position of a call that waits; empty if its model is paused, where no call is next. */
  position(wait: { position: number; paused: boolean }): string {
    return wait.paused && wait.position <= 0 ? '' : this.ahead(wait.position);
  }

  /** Formats where a call waits: behind how many others, whether its model is paused, and for how long. */
  place(wait: { position: number; paused: boolean; etaSeconds: number }): string {
    const eta = wait.etaSeconds > 0 ? `${this.t.about} ${this.estimate(wait.etaSeconds)}` : '';
    const parts = [wait.paused ? this.t.modelPaused : '', this.position(wait), eta];
    return parts.filter(Boolean).join(this.lang === 'zh' ? '，' : ', ');
  }

  /** Joins texts without a full stop to sentences; empty ones are left out. */
  sentences(...texts: string[]): string {
    return texts.filter(Boolean).join(this.lang === 'zh' ? '。' : '. ');
  }

  /** Returns a text with its numbered gaps filled. */
  fill(word: Word, ...parts: string[]): string {
    return this.t[word].replace(/\{(\d)\}/g, (_, i) => parts[Number(i)] ?? '');
  }

  /** Formats a size in bytes. */
  size(bytes: number): string {
    if (bytes >= 1 << 20) return `${this.number(Math.round((bytes / (1 << 20)) * 10) / 10)} MB`;
    return this.bytes(bytes);
  }

  private bytes(n: number): string {
    return this.number(n) + (this.lang === 'zh' ? ' 字节' : ' bytes');
  }

  /** Says that a text exceeds the limit: both in bytes, which may differ by one. */
  tooLong(bytes: number): string {
    return this.fill('textTooLong', this.bytes(bytes), this.bytes(maxTextBytes));
  }

  tryIn(seconds: number): string {
    return this.fill('tryIn', this.number(seconds));
  }

  /** Formats an amount of credits. */
  credits(n: number): string {
    return this.number(n) + (this.lang === 'zh' ? ' 点' : n === 1 ? ' credit' : ' credits');
  }

  number(n: number): string {
    return n.toLocaleString(this.lang === 'zh' ? 'zh-CN' : 'en-GB');
  }
}

export const i18n = new I18n();
