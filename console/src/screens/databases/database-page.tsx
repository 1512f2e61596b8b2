/** One database: its name, and tabs for its parts, each with code of its own. */
import type { ComponentType } from 'preact'
import { Page, Tabs } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { ErrorBoundary, Lazy } from '../../shell/lazy.tsx'
import { en } from '../../strings/en.ts'
import type { DatabasePartProps } from './database-part.ts'

interface Part {
  /** The segment of its address; empty: the first tab. */
  readonly segment: string
  readonly text: string
  /** Whether it fills the height of the window, and scrolls inside itself. */
  readonly isFull?: true
  readonly load: () => Promise<{ readonly default: ComponentType<DatabasePartProps> }>
}

const { tabs: texts } = en.databases

const PARTS: readonly Part[] = [
  { segment: '', text: texts.summary, load: () => import('./summary-part.tsx') },
  {
    segment: 'documents',
    text: texts.documents,
    isFull: true,
    load: () => import('../documents/documents-part.tsx'),
  },
  { segment: 'queries', text: texts.queries, load: () => import('../queries/queries-part.tsx') },
  { segment: 'time-machine', text: texts.timeMachine, load: () => import('./time-machine-part.tsx') },
  { segment: 'deleted', text: texts.deleted, load: () => import('./deleted-part.tsx') },
  { segment: 'access', text: texts.access, load: () => import('./access-part.tsx') },
]

export function DatabasePage({ database, path, query }: DatabasePartProps) {
  const [segment = '', ...rest] = path
  const part = PARTS.find((each) => each.segment === segment) ?? PARTS[0]!
  const tabs = PARTS.map(({ segment: each, text }) => ({
    href: hashOf(['databases', database, ...(each === '' ? [] : [each])]),
    text,
    isOn: each === part.segment,
  }))
  return (
    <Page
      title={database}
      back={{ href: hashOf(['databases']), label: en.databases.back }}
      tabs={<Tabs label={texts.label} tabs={tabs} />}
      isFull={part.isFull ?? false}
    >
      <ErrorBoundary key={part.segment}>
        <Lazy load={part.load} props={{ database, path: rest, query }} />
      </ErrorBoundary>
    </Page>
  )
}
