/** How the server is, or what an account has on it. */
import { user } from '../../api/session.ts'
import { AlarmsPart } from '../../parts/alarms-part.tsx'
import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { AccountOverview } from './account-overview.tsx'
import { HealthPart } from './health-part.tsx'
import './overview.css'
import { PlotsPart } from './plots-part.tsx'
import { BackupPart, ServerPart } from './server-part.tsx'
import { TasksPart } from './tasks-part.tsx'

export default function OverviewScreen() {
  if (user.value?.isAdmin !== true) return <AccountOverview />
  return (
    <Page title={en.overview.title}>
      <AlarmsPart />
      <div class="overview-top">
        <HealthPart />
        <div class="stack">
          <BackupPart />
          <TasksPart />
        </div>
      </div>
      <PlotsPart />
      <ServerPart />
    </Page>
  )
}
