/** The names that the requests are about: databases, documents, revisions. */

export const ADMIN = { name: 'fuzz', password: 'fuzz' } as const

/** Made, written to, emptied and deleted by the requests. */
export const WILD_DATABASES = ['wild-a', 'wild-b', 'wild/c', 'wild/_replicator', '_users'] as const

/** Never deleted by a request, and never purged; their documents below are only attacked. */
export const OPEN_VAULT = 'vault-open'
/** The same, with a validate function that lets nobody change a kept document. */
export const GUARDED_VAULT = 'vault-guarded'
export const VAULTS: readonly string[] = [OPEN_VAULT, GUARDED_VAULT]

export const NO_DATABASES = [
  'never-made',
  '_nothing',
  'Upper',
  'dots.in',
  '..',
  '\u0000',
  'é',
  '_replicator',
  '__proto__',
  'constructor',
  'x'.repeat(260),
] as const

/** In each vault from the beginning, with attachments, conflicts and deleted branches. */
export const KEPT_IDS: readonly string[] = [
  ...Array.from({ length: 12 }, (_, at) => `kept-${at}`),
  'kept/with/slashes',
  'kept é ü 漢字 😀',
  'kept+plus&and=is%25',
  'kept"quotes\\',
  `kept-${'long'.repeat(200)}`,
]

export const KEPT_ATTACHMENTS: readonly string[] = ['note.txt', 'folder/file.bin']

/** Also in each vault: its attachment is stored as gzip. It is only read. */
export const PACKED_ID = 'kept-packed'

/** The design document in each vault; no request names it as the target of a write that could succeed. */
export const GUARD_ID = '_design/guard'

export const WILD_IDS: readonly string[] = [
  ...Array.from({ length: 24 }, (_, at) => `d${at}`),
  'with/slash',
  'é',
  '😀',
  'a b',
  '+',
  '%',
  '"',
  '__proto__',
  'constructor',
  'hasOwnProperty',
]

export const ODD_IDS: readonly string[] = [
  '',
  '_',
  '_x',
  '_design',
  '_design/',
  '_local',
  '_local/',
  '_local/a/b',
  '.',
  '..',
  '\u0000',
  'a\u0000b',
  '\ufffe',
  'x'.repeat(8000),
  'x'.repeat(8001),
  '漢'.repeat(2667),
]

export const ACCOUNT_NAMES: readonly string[] = [ADMIN.name, 'another', 'é', 'a:b', '__proto__', '', 'wild-a']

export const DESIGN_NAMES: readonly string[] = ['one', 'two', 'three', 'with/slash', 'é', '_x', '']
export const LOCAL_NAMES: readonly string[] = ['l0', 'l1', 'checkpoint-é', 'a/b', '_x', '']
export const MEMBER_NAMES: readonly string[] = [
  'plain',
  'heavy',
  'broken',
  'lib',
  'none',
  '__proto__',
  'a/b',
  '',
]
export const ATTACHMENT_NAMES: readonly string[] = [
  'note.txt',
  'photo.jpg',
  'folder/file.bin',
  'é.txt',
  'packed.gz',
  '__proto__',
  '_hidden',
  '.',
  '..',
  'nul\u0000',
  'line\nbreak',
  '',
]

/** Of these the documents of wild databases are made, so that many of them are met. */
export const REVISIONS: readonly string[] = ['a', 'b', '0'.repeat(32), 'f'.repeat(32)].flatMap((hash) =>
  [1, 2, 3, 4].map((at) => `${at}-${hash}`),
)

export const ODD_REVISIONS: readonly string[] = [
  '',
  '-',
  '1',
  '1-',
  '-1-a',
  '0-1',
  '0-2',
  '1-A'.padEnd(34, 'A'),
  `1-${'z'.repeat(32)}`,
  '99999999999999999999-a',
  '2147483648-a',
  '+1-a',
  '01-a',
  '1-a-b',
  '1-\u0000',
  '1-é',
  `1-${'x'.repeat(5000)}`,
  'undefined',
  '[]',
  '"1-a"',
]

/** What is known of the vaults once they are filled, for the requests that read them. */
export interface Facts {
  /** The leaves of each kept document. */
  readonly revisions: readonly string[]
  /** Sequence tokens. */
  readonly tokens: readonly string[]
}
