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
  formattedValueToString,
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
    return (rest[0] === 'numeric' ? shown?.numeric : shown?.toString()) ?? ''; // as Grafana's own, where there is no such field
  }
  if (scope === '__field' && kind === 'labels') {
    return context.field.labels?.[name] ?? '';
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
    replaceVariables: (text) => text, theme, timeZone: 'utc', sparkline: panel.options.graphMode === 'area',
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

// Grafana's Trend: its TimeSeries with a number in place of the time.
function overField(frames, name) {
  const [frame] = frames;
  const x = frame.fields.find((field) => getFieldDisplayName(field, frame, frames) === name || field.name === name);
  const origin = (field) => ({ ...field, state: { ...field.state, origin: { frameIndex: 0, fieldIndex: frame.fields.indexOf(field) } } });
  const curves = frame.fields.filter((field) => field !== x && field.type === FieldType.number);
  return { ...frame, fields: [x, ...curves].map(origin) };
}

// Grafana's state timelines and heatmaps are parts of its application, not of its libraries: these are plain
// stand-ins, drawn from the same frames with the same names and colours, and marked as such.
const AXIS = 22, HEAD = 4;

function widest(texts) {
  const context = document.createElement('canvas').getContext('2d');
  context.font = '12px Inter, Arial, sans-serif';
  return Math.max(...texts.map((text) => context.measureText(text).width));
}

function sheet(width, height, theme, left, paint) {
  const ratio = window.devicePixelRatio;
  return h('canvas', { width: width * ratio, height: height * ratio, style: { width, height, display: 'block' }, ref: (canvas) => {
    if (canvas) {
      const context = canvas.getContext('2d');
      context.scale(ratio, ratio);
      Object.assign(context, { font: '12px Inter, Arial, sans-serif', textBaseline: 'middle', fillStyle: theme.colors.text.primary });
      paint(context, { left, top: HEAD, right: width - 8, bottom: height - AXIS });
    }
  } });
}

function times(context, { left, right, bottom }, timeRange, theme) {
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const place = (at) => left + ((at - from) / (to - from)) * (right - left);
  const step = [1, 2, 5, 10, 20, 30, 60, 120, 300].map((minutes) => minutes * 60_000).find((each) => (right - left) / ((to - from) / each) > 70) ?? to - from;
  context.textAlign = 'center';
  context.fillStyle = theme.colors.text.primary;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    context.fillText(new Date(at).toISOString().slice(11, 16), place(at), bottom + AXIS / 2 + 2);
  }
  return place;
}

const timeOf = (frame) => frame.fields.find(({ type }) => type === FieldType.time);
const shownOf = (frame) => frame.fields.filter(({ type, config }) => type !== FieldType.time && !config.custom?.hideFrom?.viz);

// Equal neighbours as one bar, from the first of them until the next sample, or one interval where none follows soon.
function bars(time, field) {
  const every = Math.min(...time.values.slice(1).map((at, index) => at - time.values[index]), 60_000);
  const found = [];
  time.values.forEach((at, index) => {
    const value = field.values[index];
    if (value === null || value === undefined || Number.isNaN(value)) {
      return;
    }
    const last = found.at(-1);
    if (last && last.value === value && at - last.until < every / 2) {
      last.until = at + every;
    } else {
      found.push({ value, since: at, until: at + every });
    }
  });
  return found;
}

// The states that are on show, in their colours.
function entries(paper, shown, { top }, theme, opacity) {
  const states = new Map(shown.flatMap(({ field }) => field.values.filter((value) => value !== null).map((value) => {
    const { text, color } = field.display(value);
    return [text, color];
  })));
  let x = 8;
  paper.textAlign = 'left';
  for (const [text, color] of states) {
    paper.globalAlpha = opacity;
    paper.fillStyle = color;
    paper.fillRect(x, top + AXIS / 2 - 2, 14, 4);
    paper.globalAlpha = 1;
    paper.fillStyle = theme.colors.text.primary;
    paper.fillText(text, x + 18, top + AXIS / 2);
    x += paper.measureText(text).width + 34;
  }
}

function timeline(panel, frames, width, height, timeRange, theme, marks) {
  const rows = frames.flatMap((frame) => shownOf(frame).map((field) => ({ name: getFieldDisplayName(field, frame, frames), field, time: timeOf(frame) })));
  const shown = rows.slice(0, panel.options.perPage ?? rows.length);
  const left = Math.min(0.4 * width, widest(shown.map(({ name }) => name)) + 12);
  const { legend, showValue } = panel.options, opacity = (panel.fieldConfig.defaults.custom?.fillOpacity ?? 70) / 100;
  return sheet(width, height, theme, left, (paper, whole) => {
    const room = legend.showLegend ? { ...whole, bottom: whole.bottom - AXIS } : whole;
    const place = times(paper, room, timeRange, theme);
    if (legend.showLegend) {
      entries(paper, shown, { ...whole, top: room.bottom + AXIS }, theme, opacity);
    }
    const row = (room.bottom - room.top) / shown.length, thick = row * (panel.options.rowHeight ?? 0.9);
    shown.forEach(({ name, field, time }, index) => {
      const middle = room.top + (index + 0.5) * row;
      paper.textAlign = 'right';
      paper.fillStyle = theme.colors.text.primary;
      paper.fillText(name, left - 8, middle, left - 10);
      for (const { value, since, until } of bars(time, field)) {
        const { color, text } = field.display(value);
        const [x, end] = [Math.max(room.left, place(since)), Math.min(room.right, place(until))];
        paper.globalAlpha = opacity;
        paper.fillStyle = color;
        paper.fillRect(x, middle - thick / 2, end - x, thick);
        paper.globalAlpha = 1;
        if (showValue !== 'never' && end - x > paper.measureText(text).width + 8 && thick > 10) {
          paper.textAlign = 'left';
          paper.fillStyle = theme.colors.getContrastText(color);
          paper.fillText(text, x + 4, middle);
        }
      }
    });
    paper.setLineDash([4, 4]);
    for (const { time, color } of marks) {
      paper.strokeStyle = theme.visualization.getColorByName(color);
      paper.beginPath();
      paper.moveTo(place(time), room.top);
      paper.lineTo(place(time), room.bottom);
      paper.stroke();
    }
  });
}

function heatmap(panel, frames, width, height, timeRange, theme) {
  const [frame] = frames, time = timeOf(frame), rows = shownOf(frame);
  const unit = getDisplayProcessor({ field: { type: FieldType.number, config: { unit: panel.options.yAxis.unit } }, theme });
  const named = (field) => {
    const bound = number(getFieldDisplayName(field, frame, frames));
    return Number.isFinite(bound) ? formattedValueToString(unit(bound)) : '+Inf';
  };
  const left = widest(rows.map(named)) + 12;
  const most = Math.max(...rows.flatMap(({ values }) => values.filter(Number.isFinite)), 1e-9);
  return sheet(width, height, theme, left, (paper, room) => {
    const place = times(paper, room, timeRange, theme);
    const row = (room.bottom - room.top) / rows.length, every = time.values[1] - time.values[0] || 15_000;
    const cell = place(every) - place(0), { fill, exponent } = panel.options.color, apart = Math.ceil(16 / row);
    rows.forEach((field, index) => {
      const top = room.bottom - (index + 1) * row;
      paper.textAlign = 'right';
      paper.globalAlpha = 1;
      if (index % apart === 0) {
        paper.fillStyle = theme.colors.text.primary;
        paper.fillText(named(field), left - 6, Math.max(top, room.top + 6));
      }
      paper.fillStyle = theme.visualization.getColorByName(fill);
      field.values.forEach((value, at) => {
        const x = place(time.values[at] - every);
        if (value > (panel.options.filterValues?.le ?? 0) && x >= room.left) {
          paper.globalAlpha = (value / most) ** exponent;
          paper.fillRect(x, top, cell - 1, row - 1);
        }
      });
    });
  });
}

const STAND_INS = ['state-timeline', 'heatmap'];

const draw = {
  trend: ({ panel, frames, width, height, timeRange }) =>
    h(TimeSeries, { frames, width, height, timeRange, timeZone: 'utc', legend: panel.options.legend, options: panel.options,
      preparePlotFrame: (all) => overField(all, panel.options.xField) }),
  'state-timeline': ({ panel, frames, width, height, timeRange, theme, marks }) => timeline(panel, frames, width, height, timeRange, theme, marks),
  heatmap: ({ panel, frames, width, height, timeRange, theme }) => heatmap(panel, frames, width, height, timeRange, theme),
  timeseries: ({ panel, frames, width, height, timeRange, theme, marks }) =>
    h(TimeSeries, { frames, width, height, timeRange, timeZone: 'utc', legend: panel.options.legend, options: panel.options },
      marked(marks, theme)),
  table: ({ panel, frames, width, height, timeRange }) =>
    h(Table, { data: frames[0], width, height, timeRange, fieldConfig: panel.fieldConfig, initialSortBy: panel.options.sortBy,
      noHeader: !panel.options.showHeader, cellHeight: panel.options.cellHeight, enableVirtualization: false }),
  stat: ({ panel, frames, width, height, timeRange, theme }) => {
    const all = values(panel, frames, theme);
    return h('div', { style: { display: 'flex', height } }, all.map((value, index) => h(BigValue, {
      key: index, theme, width: width / all.length, height, value: value.display, count: all.length,
      sparkline: value.sparkline && { ...value.sparkline, timeRange }, // as Grafana's StatPanel does
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
    box.title = panel.title;
    const title = document.createElement('h2');
    title.textContent = panel.title;
    if (STAND_INS.includes(panel.type)) {
      const note = document.createElement('small');
      note.textContent = 'stand-in';
      Object.assign(note.style, { float: 'right', font: '11px Inter, Arial, sans-serif', color: theme.colors.text.disabled });
      title.append(note);
    }
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
