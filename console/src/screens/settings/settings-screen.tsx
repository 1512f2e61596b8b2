/** The settings: tabs for their parts, each with code of its own. */
import './settings.css'
import type { ComponentType } from 'preact'
import { Page, Tabs } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { ErrorBoundary, Lazy } from '../../shell/lazy.tsx'
import { en } from '../../strings/en.ts'

interface Part {
  /** The segment of its address; empty: the first tab. */
  readonly segment: string
  readonly text: string
  readonly load: () => Promise<{ readonly default: ComponentType<Route> }>
}

const { tabs: texts } = en.settings

const PARTS: readonly Part[] = [
  { segment: '', text: texts.configuration, load: () => import('./configuration-part.tsx') },
  { segment: 'log', text: texts.log, load: () => import('./log-part.tsx') },
  { segment: 'backups', text: texts.backups, load: () => import('./backups-part.tsx') },
  { segment: 'admins', text: texts.admins, load: () => import('./admins-part.tsx') },
]

export default function SettingsScreen({ path, query }: Route) {
  const [segment = ''] = path
  const part = PARTS.find((each) => each.segment === segment) ?? PARTS[0]!
  const tabs = PARTS.map(({ segment: each, text }) => ({
    href: hashOf(['settings', ...(each === '' ? [] : [each])]),
    text,
    isOn: each === part.segment,
  }))
  return (
    <Page title={en.settings.title} tabs={<Tabs label={texts.label} tabs={tabs} />}>
      <ErrorBoundary key={part.segment}>
        <Lazy load={part.load} props={{ path: path.slice(1), query }} />
      </ErrorBoundary>
    </Page>
  )
}
