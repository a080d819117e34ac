// Draws the panels of a dashboard with Grafana's own libraries, and says what a person reads on them.
//
// `window.show(request)` gets panels as they stand in a dashboard's JSON, with the answers of Prometheus to each
// of their queries, and returns once all are drawn.

import {
  applyFieldOverrides,
  createTheme,
  dateTime,
  EventBusSrv,
  FieldConfigOptionsRegistry,
  FieldType,
  fieldReducers,
  getDisplayProcessor,
  getFieldDisplayName,
  getFieldDisplayValues,
  getFieldDisplayValuesProxy,
  dataLinksOverrideProcessor,
  identityOverrideProcessor,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  ThemeContext,
  thresholdsOverrideProcessor,
  toDataFrame,
  transformDataFrame,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelContextProvider, TimeSeries } from '@grafana/ui';
import { drawn, ofTables, registered, Table } from './version';
import { transformV2 } from './node_modules/@grafana/prometheus/dist/esm/result_transformer.mjs';
import { createElement as h } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { firstValueFrom } from 'rxjs';
import 'uplot/dist/uPlot.min.css';

standardTransformersRegistry.setInit(() =>
  Object.entries(standardTransformers)
    .filter(([name]) => name !== 'seriesToColumnsTransformer') // the old name of joinByField
    .map(([, transformer]) => transformer)
    .map((transformer) => ({ id: transformer.id, name: transformer.name, transformation: registered(transformer), editor: null }))
);

// Grafana's application registers these; a property that is not registered is dropped without a word.
const PROPERTIES = {
  displayName: identityOverrideProcessor,
  unit: identityOverrideProcessor,
  min: identityOverrideProcessor,
  max: identityOverrideProcessor,
  decimals: identityOverrideProcessor,
  color: identityOverrideProcessor,
  noValue: identityOverrideProcessor,
  fieldMinMax: identityOverrideProcessor,
  filterable: identityOverrideProcessor,
  description: identityOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
};

const property = (id, path, process, isCustom) => ({
  id, path, process, isCustom, name: id, override: null, editor: null, settings: {}, shouldApply: () => true,
});

function registry(panel) {
  const own = [panel.fieldConfig.defaults.custom ?? {}, ...panel.fieldConfig.overrides.map(({ properties }) =>
    Object.fromEntries(properties.filter(({ id }) => id.startsWith('custom.')).map(({ id, value }) => [id.slice(7), value])))];
  const custom = panel.type === 'table' ? ofTables : [...new Set(own.flatMap(Object.keys))];
  return new FieldConfigOptionsRegistry(() => [
    ...Object.entries(PROPERTIES).map(([id, process]) => property(id, id, process, false)),
    ...custom.map((name) => property(`custom.${name}`, name, identityOverrideProcessor, true)),
  ]);
}

// Prometheus' data source in Grafana's backend: one frame a series, in the order of the answer.
function framesOf(target, answer) {
  const { resultType, result } = answer;
  return result.map((series) => {
    const samples = resultType === 'matrix' ? series.values : [series.value];
    const { __name__, ...labels } = series.metric;
    const name = legend(target, series.metric);
    return toDataFrame({
      refId: target.refId,
      name,
      meta: { type: 'timeseries-multi', custom: { resultType } },
      fields: [
        { name: 'Time', type: FieldType.time, values: samples.map(([at]) => at * 1000),
          config: target.range ? { interval: 1000 * answer.step } : {} },
        { name: 'Value', type: FieldType.number, labels: __name__ ? { __name__, ...labels } : labels,
          values: samples.map(([, value]) => number(value)), config: name ? { displayNameFromDS: name } : {} },
      ],
    });
  });
}

const number = (text) => ({ '+Inf': Infinity, '-Inf': -Infinity, NaN: NaN })[text] ?? Number(text);

function legend({ legendFormat, expr }, { __name__ = '', ...labels }) {
  if (legendFormat && legendFormat !== '__auto') {
    return legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => (name === '__name__' ? __name__ : labels[name]) ?? '');
  }
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${value}"`);
  return pairs.length ? `${__name__}{${pairs.join(', ')}}` : __name__ || expr;
}

// What Grafana puts in place of a variable: of a dashboard, or in a link of the row or series that is clicked.
const interpolated = (variables) => (text, scoped) => text.replace(/\$\{([^}:]+)(?::(\w+))?\}/g, (whole, path, format) => {
  const value = valueOf(path, variables, scoped?.__dataContext?.value);
  return value === undefined ? whole : format === 'percentencode' ? encodeURIComponent(value) : String(value);
});

function valueOf(path, variables, context) {
  const [scope, kind, name, ...rest] = path.split('.');
  if (scope === '__data' && kind === 'fields') {
    const shown = getFieldDisplayValuesProxy({ frame: context.frame, rowIndex: context.rowIndex })[name];
    return shown && (rest[0] === 'numeric' ? shown.numeric : shown.toString());
  }
  if (scope === '__field' && kind === 'labels') {
    return context.field.labels?.[name];
  }
  return variables[path];
}

// The frames as the panel gets them: transformed, with field config and overrides applied.
async function prepared(panel, answers, { theme, range, variables }) {
  const targets = panel.targets ?? [];
  const data = targets.flatMap((target) => framesOf(target, answers[target.refId]));
  const { data: frames } = transformV2({ data }, { targets, app: 'dashboard' }, {});
  const replace = interpolated(variables);
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], frames, { interpolate: replace }));
  return applyFieldOverrides({
    data: transformed, fieldConfig: panel.fieldConfig, replaceVariables: replace, theme, timeZone: 'utc',
    fieldConfigRegistry: registry(panel),
  });
}

const cell = (field, value, row) => {
  const shown = field.display(value);
  const links = row === undefined ? [] : field.getLinks?.({ valueRowIndex: row }) ?? [];
  return { text: `${shown.prefix ?? ''}${shown.text}${shown.suffix ?? ''}`, color: shown.color, links: links.map(({ href }) => href) };
};

// What can be read without a picture: of a table its cells, of values their texts, of curves their names and ends.
function read(panel, frames, theme) {
  if (panel.type === 'stat' || panel.type === 'bargauge' || panel.type === 'gauge') {
    return values(panel, frames, theme).map(({ display }) => ({
      name: display.title, text: `${display.prefix ?? ''}${display.text}${display.suffix ?? ''}`, color: display.color,
    }));
  }
  if (panel.type === 'table') {
    return frames.slice(0, 1).flatMap((frame) => {
      const fields = frame.fields.filter(({ config }) => !config.custom?.hidden && !config.custom?.hideFrom?.viz);
      return Array.from({ length: frame.length }, (_, row) =>
        Object.fromEntries(fields.map((field) => [getFieldDisplayName(field, frame, frames), cell(field, field.values[row], row)])));
    });
  }
  return frames.flatMap((frame) => frame.fields.filter(({ type }) => type === FieldType.number).map((field) => ({
    name: getFieldDisplayName(field, frame, frames),
    unit: field.config.unit,
    color: field.config.color?.fixedColor ?? field.config.color?.mode,
    axis: field.config.custom?.axisPlacement,
    legend: !field.config.custom?.hideFrom?.legend,
    shown: !field.config.custom?.hideFrom?.viz,
    min: field.config.min, max: field.config.max,
    values: field.values.length,
    texts: [...new Set(field.values.map((value) => cell(field, value).text))].slice(0, 20),
    colors: [...new Set(field.values.map((value) => cell(field, value).color))].slice(0, 20),
    last: cell(field, field.values.at(-1)),
  })));
}

function values(panel, frames, theme) {
  return getFieldDisplayValues({
    data: frames, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text, theme, timeZone: 'utc',
  });
}

// Marks, as Grafana's own plugin draws them: a dashed line, and a tag below the curves.
const marked = (marks, theme) => (config) => {
  config.addHook('draw', (plot) => {
    const { left, top, width, height } = plot.bbox;
    for (const { time, color } of marks) {
      const x = plot.valToPos(time, 'x', true);
      if (x < left || x > left + width) {
        continue;
      }
      plot.ctx.save();
      plot.ctx.strokeStyle = plot.ctx.fillStyle = theme.visualization.getColorByName(color);
      plot.ctx.setLineDash([5, 5]);
      plot.ctx.beginPath();
      plot.ctx.moveTo(x, top);
      plot.ctx.lineTo(x, top + height);
      plot.ctx.stroke();
      plot.ctx.beginPath();
      plot.ctx.moveTo(x - 5, top + height + 6);
      plot.ctx.lineTo(x + 5, top + height + 6);
      plot.ctx.lineTo(x, top + height);
      plot.ctx.fill();
      plot.ctx.restore();
    }
  });
  return null;
};

const draw = {
  timeseries: ({ panel, frames, width, height, timeRange, theme, marks }) =>
    h(TimeSeries, { frames, width, height, timeRange, timeZone: 'utc', legend: panel.options.legend, options: panel.options },
      marked(marks, theme)),
  table: ({ panel, frames, width, height, timeRange }) =>
    h(Table, { data: frames[0], width, height, timeRange, fieldConfig: panel.fieldConfig, initialSortBy: panel.options.sortBy,
      noHeader: !panel.options.showHeader, cellHeight: panel.options.cellHeight, enableVirtualization: false }),
  stat: ({ panel, frames, width, height, theme }) => {
    const all = values(panel, frames, theme);
    return h('div', { style: { display: 'flex', height } }, all.map((value, index) => h(BigValue, {
      key: index, theme, width: width / all.length, height, value: value.display, count: all.length,
      sparkline: panel.options.graphMode === 'none' ? undefined : value.sparkline,
      colorMode: panel.options.colorMode, graphMode: panel.options.graphMode, textMode: panel.options.textMode,
      justifyMode: panel.options.justifyMode, text: panel.options.text, disableWideLayout: !panel.options.wideLayout,
    })));
  },
  bargauge: ({ panel, frames, width, height, theme }) => {
    const all = values(panel, frames, theme);
    return h('div', {}, all.map((value, index) => h(BarGauge, {
      key: index, theme, width, height: height / all.length, value: value.display, field: value.field,
      display: value.view?.getFieldDisplayProcessor(value.colIndex), orientation: panel.options.orientation,
      displayMode: panel.options.displayMode, text: panel.options.text,
    })));
  },
};

window.show = async ({ panels, answers, marks = [], mode = 'dark', width = 1600, from, to, variables = {} }) => {
  const theme = createTheme({ colors: { mode } });
  const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  Object.assign(document.body.style, { margin: 0, width: `${width}px`, background: theme.colors.background.canvas,
    color: theme.colors.text.primary, font: `14px Inter, "Helvetica Neue", Arial, sans-serif` });
  document.body.replaceChildren();
  const unit = (width - 16) / 24, rowHeight = 38, found = {};
  for (const panel of panels) {
    const { x, y, w, h: rows } = panel.gridPos;
    const box = document.createElement('section');
    Object.assign(box.style, { position: 'absolute', boxSizing: 'border-box', left: `${8 + x * unit}px`, top: `${8 + y * rowHeight}px`,
      width: `${w * unit - 8}px`, height: `${rows * rowHeight - 8}px`, overflow: 'hidden',
      background: theme.colors.background.primary, border: `1px solid ${theme.colors.border.weak}` });
    const title = document.createElement('h2');
    title.textContent = panel.title;
    Object.assign(title.style, { font: '500 14px Inter, Arial, sans-serif', margin: '6px 8px 4px', height: '20px', whiteSpace: 'nowrap', overflow: 'hidden', textOverflow: 'ellipsis' });
    const body = document.createElement('div');
    Object.assign(body.style, { position: 'relative', margin: '0 8px' });
    box.append(title, body);
    document.body.append(box);
    const frames = await prepared(panel, answers[panel.id] ?? {}, { theme, range: timeRange, variables });
    found[panel.id] = read(panel, frames, theme);
    const size = { width: w * unit - 26, height: rows * rowHeight - 46 };
    if (!frames.length || !frames.some(({ length }) => length)) {
      body.textContent = panel.fieldConfig.defaults.noValue ?? 'No data';
      continue;
    }
    const drawer = drawn && draw[panel.type];
    if (!drawer) {
      body.textContent = `A ${panel.type.replace('-', ' ')} of ${frames.length} rows: Grafana draws it itself.`;
      continue;
    }
    const context = { eventsScope: 'panel', eventBus: new EventBusSrv() };
    flushSync(() => createRoot(body).render(
      h(ThemeContext.Provider, { value: theme },
        h(GlobalStyles, { skipFonts: true }),
        h(PanelContextProvider, { value: context },
          drawer({ panel, frames, timeRange, theme, marks, ...size })))));
  }
  await new Promise((resolve) => setTimeout(resolve, 300));
  return found;
};
