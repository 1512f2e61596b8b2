/** All settings, in groups, with a search; each can be changed in a dialog. */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { SelectField, TextField } from '../../parts/field.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import type { Setting } from './setting.ts'
import { SettingDialog } from './setting-dialog.tsx'
import { filterSettings, GROUPS, groupOf, type SettingFilter } from './setting-groups.ts'
import { shownDefault, shownValue, sourceText } from './setting-values.ts'
import { type Configuration, readConfiguration } from './settings-api.ts'

const { configuration: texts } = en.settings

const CHOICES = (['all', 'unsafe', 'changed', ...GROUPS] as const).map(
  (group) => [group, texts.groups[group]] as const,
)

export default function ConfigurationPart({ query }: Route) {
  const { data, failure, reload } = useLoad(readConfiguration, 'configuration')
  const [edited, setEdited] = useState<Setting | null>(null)
  const filter: SettingFilter = {
    group: CHOICES.find(([name]) => name === query.group)?.[0] ?? 'all',
    text: query.q ?? '',
  }
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={12} />}
      {data !== undefined && (
        <>
          <Warnings configuration={data} filter={filter} />
          <Filters filter={filter} />
          <Groups configuration={data} filter={filter} onEdit={setEdited} />
        </>
      )}
      {edited !== null && (
        <SettingDialog setting={edited} onClose={() => setEdited(null)} onChanged={reload} />
      )}
    </>
  )
}

function show({ group, text }: SettingFilter): void {
  const query = { group: group === 'all' ? undefined : group, q: text === '' ? undefined : text }
  go(hashOf(['settings'], query), { replaces: true })
}

interface PartProps {
  readonly configuration: Configuration
  readonly filter: SettingFilter
}

function Warnings({ configuration: { settings, unsafe }, filter }: PartProps) {
  const general = unsafe.filter(({ key }) => key === null)
  const others = unsafe.length - general.length
  const waiting = settings.filter((setting) => setting.restart_needed).length
  const isDanger = unsafe.some(({ key, severity }) => key !== null && severity === 'danger')
  const button = (
    <Button isSmall onClick={() => show({ group: 'unsafe', text: '' })}>
      {texts.showUnsafe}
    </Button>
  )
  return (
    <>
      {general.map(({ section, reason }) => (
        <Notice
          key={section}
          tone="bad"
          title={reason}
          actions={
            section === 'admins' && (
              <LinkButton isSmall href={hashOf(['settings', 'admins'])}>
                {en.settings.tabs.admins}
              </LinkButton>
            )
          }
        />
      ))}
      {others > 0 && filter.group !== 'unsafe' && (
        <Notice tone={isDanger ? 'bad' : 'warn'} title={texts.unsafeTitle(others)} actions={button} />
      )}
      {waiting > 0 && <Notice tone="info" title={texts.restart(waiting)} />}
    </>
  )
}

function Filters({ filter }: Pick<PartProps, 'filter'>) {
  return (
    <search class="filters">
      <TextField
        label={texts.search}
        type="search"
        placeholder={texts.searchHint}
        value={filter.text}
        isCode
        onChange={(text) => show({ ...filter, text })}
      />
      <SelectField
        label={texts.group}
        value={filter.group}
        options={CHOICES}
        onChange={(group) => show({ ...filter, group })}
      />
    </search>
  )
}

interface GroupsProps extends PartProps {
  readonly onEdit: (setting: Setting) => void
}

function Groups({ configuration: { settings, left_out: leftOut }, filter, onEdit }: GroupsProps) {
  const found = filterSettings(settings, filter)
  const groups = GROUPS.map((group) => [group, found.filter((each) => groupOf(each) === group)] as const)
  return (
    <>
      <p class="fine" role="status">
        {texts.found(found.length)}
      </p>
      {found.length === 0 && (
        <Empty
          icon="search"
          title={texts.none}
          action={<Button onClick={() => show({ group: 'all', text: '' })}>{texts.showAll}</Button>}
        >
          {texts.noneHelp}
        </Empty>
      )}
      {groups.map(
        ([group, members]) =>
          members.length > 0 && (
            <Card key={group} title={texts.groups[group]} isFlush>
              <ul class="settings">
                {members.map((setting) => (
                  <SettingRow key={`${setting.section}/${setting.key}`} setting={setting} onEdit={onEdit} />
                ))}
              </ul>
            </Card>
          ),
      )}
      {leftOut > 0 && <p class="fine">{texts.leftOut(leftOut)}</p>}
    </>
  )
}

function SettingRow({
  setting,
  onEdit,
}: {
  readonly setting: Setting
  readonly onEdit: (setting: Setting) => void
}) {
  const { section, key, about, unsafe, editable, restart_needed: waits } = setting
  const path = `${section}/${key}`
  return (
    <li class="setting">
      <div class="setting-name">
        <h3 class="is-code">
          <span class="soft">{section}/</span>
          {key}
        </h3>
        <p class="soft">{about ?? texts.unknown}</p>
      </div>
      <div class="setting-value">
        <p class={setting.value ? 'is-code' : 'soft'}>{shownValue(setting)}</p>
        <p class="fine">
          <Origin setting={setting} />
        </p>
        {waits && <Badge tone="info">{texts.waits}</Badge>}
      </div>
      {editable ? (
        <Button kind="quiet" icon="edit" label={texts.edit(path)} onClick={() => onEdit(setting)} />
      ) : (
        <span class="fine setting-fixed">{texts.fixed}</span>
      )}
      {unsafe !== null && (
        <p class={`setting-unsafe ${unsafe.severity === 'danger' ? 'is-bad' : 'is-warn'}`}>
          <strong>{unsafe.severity === 'danger' ? texts.danger : texts.caution}</strong> {unsafe.reason}
        </p>
      )}
    </li>
  )
}

/** Where the value comes from, and the default beside it if it differs. */
function Origin({ setting }: { readonly setting: Setting }) {
  const { source, value } = setting
  if (source === 'default') return <>{texts.isDefault}</>
  const parts = [sourceText(setting)]
  if (value !== setting.default) parts.push(texts.byDefault(shownDefault(setting)))
  return <>{parts.join(' · ')}</>
}
