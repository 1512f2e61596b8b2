import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function OverviewScreen() {
  return <Page title={en.overview.title}>{null}</Page>
}
