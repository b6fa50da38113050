// The API and the stored captures of the last release are understood by this one: compares the descriptors that are
// compiled in with released/*.txtpb. Something may be added; what is there keeps name, number, type and place.
//
// After a release, and not to make a test pass: tests/compat/release_protos.sh writes these files anew.
#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "daemon/store/raw_capture.pb.h"
#include "stackd/v1/fleet.pb.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {
namespace {

namespace pb = google::protobuf;

// Lists what of a release a later file of the same name lacks or has otherwise, a sentence each.
class Comparison {
 public:
  void File(const pb::FileDescriptor& released, const pb::FileDescriptor& current) {
    if (released.package() != current.package()) Say("package " + released.package(), "has become " + current.package());
    for (int i = 0; i < released.message_type_count(); ++i) {
      const pb::Descriptor& message = *released.message_type(i);
      if (const auto* now = current.FindMessageTypeByName(message.name())) {
        Message(message, *now);
      } else {
        Say(message.full_name(), "is gone");
      }
    }
    for (int i = 0; i < released.enum_type_count(); ++i) {
      Enum(*released.enum_type(i), current.FindEnumTypeByName(released.enum_type(i)->name()));
    }
    for (int i = 0; i < released.service_count(); ++i) {
      Service(*released.service(i), current.FindServiceByName(released.service(i)->name()));
    }
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Say(const std::string& what, const std::string& how) { problems_.push_back(what + " " + how); }

  void Message(const pb::Descriptor& released, const pb::Descriptor& current) {
    for (int i = 0; i < released.field_count(); ++i) {
      Field(*released.field(i), current.FindFieldByNumber(released.field(i)->number()));
    }
    for (int i = 0; i < released.nested_type_count(); ++i) {
      const pb::Descriptor& nested = *released.nested_type(i);
      if (const auto* now = current.FindNestedTypeByName(nested.name())) {
        Message(nested, *now);
      } else {
        Say(nested.full_name(), "is gone");
      }
    }
    for (int i = 0; i < released.enum_type_count(); ++i) {
      Enum(*released.enum_type(i), current.FindEnumTypeByName(released.enum_type(i)->name()));
    }
  }

  // Name, type, label and oneof, as text: equal text is read alike, in bytes and in JSON.
  static std::string Shape(const pb::FieldDescriptor& field) {
    std::string type = field.type_name();
    if (field.message_type() != nullptr) type = field.message_type()->full_name();
    if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
    std::string shape = field.is_repeated() ? "repeated " : "";
    if (field.has_optional_keyword()) shape += "optional ";
    shape += type + " " + field.name();
    if (const auto* oneof = field.real_containing_oneof()) shape += " in " + oneof->name();
    return shape;
  }

  void Field(const pb::FieldDescriptor& released, const pb::FieldDescriptor* current) {
    const std::string what =
        "field " + std::to_string(released.number()) + " of " + released.containing_type()->full_name();
    if (current == nullptr) {
      Say(what, "(" + released.name() + ") is gone");
    } else if (Shape(released) != Shape(*current)) {
      Say(what, "was `" + Shape(released) + "` and is `" + Shape(*current) + "`");
    }
  }

  void Enum(const pb::EnumDescriptor& released, const pb::EnumDescriptor* current) {
    if (current == nullptr) return Say(released.full_name(), "is gone");
    for (int i = 0; i < released.value_count(); ++i) {
      const pb::EnumValueDescriptor& value = *released.value(i);
      const auto* now = current->FindValueByName(value.name());
      if (now == nullptr) {
        Say(value.full_name(), "is gone");
      } else if (now->number() != value.number()) {
        Say(value.full_name(), "was " + std::to_string(value.number()) + " and is " + std::to_string(now->number()));
      }
    }
  }

  static std::string Shape(const pb::MethodDescriptor& method) {
    return std::string(method.client_streaming() ? "stream " : "") + method.input_type()->full_name() + " -> " +
           (method.server_streaming() ? "stream " : "") + method.output_type()->full_name();
  }

  void Service(const pb::ServiceDescriptor& released, const pb::ServiceDescriptor* current) {
    if (current == nullptr) return Say(released.full_name(), "is gone");
    for (int i = 0; i < released.method_count(); ++i) {
      const pb::MethodDescriptor& method = *released.method(i);
      const auto* now = current->FindMethodByName(method.name());
      if (now == nullptr) {
        Say(method.full_name(), "is gone");
      } else if (Shape(method) != Shape(*now)) {
        Say(method.full_name(), "was `" + Shape(method) + "` and is `" + Shape(*now) + "`");
      }
    }
  }

  std::vector<std::string> problems_;
};

// What of `file` in a set of descriptors `current` does not keep. `change` is made to the released descriptors first.
std::vector<std::string> Problems(
    const std::string& path, const pb::FileDescriptor& current,
    const std::function<void(pb::FileDescriptorProto&)>& change = [](pb::FileDescriptorProto&) {}) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  pb::io::FileInputStream stream(fd);
  stream.SetCloseOnDelete(true);
  pb::FileDescriptorSet set;
  if (fd < 0 || !pb::TextFormat::Parse(&stream, &set)) return {path + " cannot be read"};
  pb::DescriptorPool pool;
  for (pb::FileDescriptorProto& file : *set.mutable_file()) {
    if (file.name() == current.name()) change(file);
    if (pool.BuildFile(file) == nullptr) return {file.name() + " is no valid file of descriptors"};
  }
  const auto* released = pool.FindFileByName(current.name());
  if (released == nullptr) return {current.name() + " is not in " + path};
  Comparison comparison;
  comparison.File(*released, current);
  return comparison.problems();
}

std::string Lines(const std::vector<std::string>& problems) {
  std::string lines;
  for (const std::string& problem : problems) lines += problem + "\n";
  return lines;
}

constexpr char kWhatToDo[] =
    "Clients and stores of the last release would misread this. Keep what was there (mark it deprecated), and add what is "
    "new under "
    "new names and numbers.";

constexpr char kApi[] = "tests/compat/released/stackd_v1.txtpb";
constexpr char kFleet[] = "tests/compat/released/fleet_v1.txtpb";
constexpr char kCapture[] = "tests/compat/released/raw_capture.txtpb";
const pb::FileDescriptor& Api() { return *v1::Dump::descriptor()->file(); }

TEST(ApiTest, KeepsWhatTheLastReleaseHas) { EXPECT_EQ("", Lines(Problems(kApi, Api()))) << kWhatToDo; }

TEST(ApiTest, TheFleetKeepsWhatTheLastReleaseHas) {
  EXPECT_EQ("", Lines(Problems(kFleet, *v1::FleetDump::descriptor()->file()))) << kWhatToDo;
}

TEST(ApiTest, StoredCapturesKeepWhatTheLastReleaseHas) {
  EXPECT_EQ("", Lines(Problems(kCapture, *store::RawCapture::descriptor()->file()))) << kWhatToDo;
}

pb::DescriptorProto& MessageIn(pb::FileDescriptorProto& file, const std::string& name) {
  for (pb::DescriptorProto& message : *file.mutable_message_type()) {
    if (message.name() == name) return message;
  }
  return *file.add_message_type();
}

// Had the release been otherwise: each kind of change is told.
TEST(ApiTest, AFieldThatIsGoneIsTold) {
  auto problems = Problems(kApi, Api(), [](pb::FileDescriptorProto& file) {
    pb::FieldDescriptorProto& field = *MessageIn(file, "Dump").add_field();
    field.set_name("forgotten");
    field.set_number(900);
    field.set_type(pb::FieldDescriptorProto::TYPE_STRING);
    field.set_label(pb::FieldDescriptorProto::LABEL_OPTIONAL);
  });
  EXPECT_EQ("field 900 of stackd.v1.Dump (forgotten) is gone\n", Lines(problems));
}

TEST(ApiTest, AFieldOfAnotherNameOrTypeIsTold) {
  auto problems = Problems(kApi, Api(), [](pb::FileDescriptorProto& file) {
    pb::FieldDescriptorProto& field = *MessageIn(file, "Dump").mutable_field(0);
    field.set_type(pb::FieldDescriptorProto::TYPE_BYTES);
    field.set_name("title");
  });
  EXPECT_EQ("field 1 of stackd.v1.Dump was `bytes title` and is `string name`\n", Lines(problems));
}

TEST(ApiTest, AValueOfAnotherNumberIsTold) {
  auto problems = Problems(kApi, Api(), [](pb::FileDescriptorProto& file) {
    for (pb::EnumDescriptorProto& type : *file.mutable_enum_type()) {
      if (type.name() == "DumpView") type.mutable_value(1)->set_number(77);
    }
  });
  EXPECT_EQ(1u, problems.size()) << Lines(problems);
}

TEST(ApiTest, AMethodThatIsGoneIsTold) {
  auto problems = Problems(kApi, Api(), [](pb::FileDescriptorProto& file) {
    *file.mutable_service(0)->add_method() = file.service(0).method(0);
    file.mutable_service(0)->mutable_method(file.service(0).method_size() - 1)->set_name("Forgotten");
  });
  EXPECT_EQ("stackd.v1.Stackd.Forgotten is gone\n", Lines(problems));
}

}  // namespace
}  // namespace stackd
