#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"

namespace stackd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::FieldMask;
using google::protobuf::Message;
using google::protobuf::util::BinaryToJsonString;
using google::protobuf::util::FieldMaskUtil;
using google::protobuf::util::TypeResolver;

// Lists of messages are what makes a dump large: they are written element by element.
bool IsListOfMessages(const FieldDescriptor& field) {
  return field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// With maps in the order of their keys: equal dumps have equal bytes, and so one digest.
std::string Serialized(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string Json(const Message& message) {
  constexpr char kPrefix[] = "type.googleapis.com";
  // Never destroyed: a thread may export until the process is gone.
  static TypeResolver* const types =
      google::protobuf::util::NewTypeResolverForDescriptorPool(kPrefix, google::protobuf::DescriptorPool::generated_pool());
  std::string json;
  const auto status = BinaryToJsonString(types, std::string(kPrefix) + "/" + message.GetDescriptor()->full_name(),
                                         Serialized(message), &json);
  // Fails for no dump that was assembled or stored, whose text is UTF-8 and whose times are in range.
  return status.ok() ? json : "{}";
}

}  // namespace

void ExportJson(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  FieldMask small_fields;
  std::vector<const FieldDescriptor*> fields;
  dump.GetReflection()->ListFields(dump, &fields);
  for (const FieldDescriptor* field : fields) {
    if (!IsListOfMessages(*field)) small_fields.add_paths(field->name());
  }
  v1::Dump small;
  FieldMaskUtil::MergeMessageTo(dump, small_fields, {}, &small);
  std::string json = Json(small);
  json.pop_back();  // "}": more members follow
  out << json;

  std::string_view separator = json.size() > 1 ? "," : "";
  for (const FieldDescriptor* field : fields) {
    if (!IsListOfMessages(*field)) continue;
    out << separator << "\"" << field->json_name() << "\":[";
    const int count = dump.GetReflection()->FieldSize(dump, field);
    for (int i = 0; i < count && out.wanted(); ++i) {
      out << (i > 0 ? "," : "") << Json(dump.GetReflection()->GetRepeatedMessage(dump, field, i));
    }
    out << "]";
    separator = ",";
  }
  out << "}";
}

}  // namespace stackd
