import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function SettingsScreen() {
  return <Page title={en.settings.title}>{null}</Page>
}
